# GNU make 3.81 or newer. The commands are in README.md; one build folder per configuration: build/$(CONF).
#
#   CONF=release   -O3, programs in bin/                CONF=noprof   the profiler compiled out
#   CONF=debug     -O1, scratch poisoned                CONF=clang    release by clang
#   CONF=asan      address and undefined sanitizers     CONF=fuzz     clang's libFuzzer with asan
#   CONF=tsan      thread sanitizer                     CONF=arm64    cross build of the kernels and their tests
#   CUDA=1         with the CUDA backend, in build/cuda-$(CONF) (docs/cuda.md)
#   METAL=1        with the Metal backend on macOS, in build/metal-$(CONF); METAL=sim: with the software device of the
#                  tests in the GPU's place, on any system, in build/metal-sim-$(CONF) (docs/metal.md)
CONF    ?= release
FLAVOUR := $(if $(CUDA),cuda-)$(if $(METAL),metal-$(if $(filter sim,$(METAL)),sim-))
BUILD   ?= build/$(FLAVOUR)$(CONF)
BIN     ?= $(if $(FLAVOUR),$(BUILD)/bin,$(if $(filter release,$(CONF)),bin,$(BUILD)/bin))
PREFIX  ?= /usr/local

# --- compiler and flags -------------------------------------------------------------------------------

ifeq ($(origin CC),default)
CC_clang := clang
CC_fuzz  := clang
CC_arm64 := aarch64-linux-gnu-gcc
CC       := $(or $(CC_$(CONF)),cc)
endif
AR      ?= ar
SYSTEM  := $(shell uname -s)
ARCH    := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)

CFLAGS_release := -O3 -g
CFLAGS_debug   := -O1 -g -DDS_POISON
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined -DDS_POISON
CFLAGS_tsan    := -O1 -g -fsanitize=thread
CFLAGS_noprof  := -O3 -g -DDS_NO_PROFILE
CFLAGS_clang   := -O3 -g
CFLAGS_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -DDS_POISON
CFLAGS_arm64   := -O3 -g
LDFLAGS_arm64  := -static
ifeq (,$(CFLAGS_$(CONF)))
$(error CONF=$(CONF) is not a configuration; the Makefile's first lines list them)
endif

CFLAGS   += -std=c11 -Wall -Wextra -Wpedantic $(if $(WERROR),-Werror) -fno-math-errno -ffp-contract=off $(CFLAGS_$(CONF))
CPPFLAGS += -Iinclude -Isrc -D_POSIX_C_SOURCE=200809L
LDFLAGS  += $(LDFLAGS_$(CONF))
LDLIBS   += -lutf8proc -lm -lpthread
JSON     := -ljansson                     # for what reads requests
ifeq ($(SYSTEM),Darwin)
BREW     := $(firstword $(wildcard /opt/homebrew /usr/local))
CPPFLAGS += -I$(BREW)/include
LDFLAGS  += -L$(BREW)/lib
endif

# Flags by file name: a variant is compiled for its instruction set, everything else for the baseline.
ISA_avx2       := -mavx2 -mfma -mf16c
ISA_avxvnni    := $(ISA_avx2) -mavxvnni
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni
ISA_avx512bf16 := $(ISA_avx512) -mavx512bf16
ISA_neon       :=
ISA_dotprod    := -march=armv8.2-a+dotprod
ISA_i8mm       := -march=armv8.2-a+dotprod+i8mm
isa_flags = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $1)))))

.DEFAULT_GOAL := all

# --- files --------------------------------------------------------------------------------------------

KERNEL_SRC := $(wildcard src/base/*.c src/quant/*.c src/kernels/*.c src/kernels/ref/*.c)
ifneq (,$(filter x86_64 i686,$(ARCH)))
KERNEL_SRC += $(wildcard src/kernels/x86/*.c)
endif
ifneq (,$(filter aarch64 arm64,$(ARCH)))
KERNEL_SRC += $(wildcard src/kernels/arm/*.c)
endif
SRC     := $(KERNEL_SRC) $(wildcard src/gguf/*.c src/token/*.c src/backend/*.c src/backend/cpu/*.c src/backend/split/*.c src/backend/tandem/*.c \
             src/model/*.c src/prof/*.c src/synth/*.c src/engine/*.c src/store/*.c src/answer/*.c \
             src/chat/*.c src/server/*.c)
TESTSRC := $(wildcard tests/unit/test_*.c tests/kernels/test_*.c tests/kernels/check_*.c tests/model/test_*.c)
FUZZSRC := $(wildcard tests/fuzz/fuzz_*.c)
ifeq ($(CONF),arm64)      # no arm64 utf8proc without a foreign architecture in apt: the parts that need no text
SRC     := $(KERNEL_SRC)
TESTSRC := $(wildcard tests/kernels/test_*.c tests/unit/test_base_*.c tests/unit/test_quant*.c)
FUZZSRC :=
LDLIBS  := -lm -lpthread
JSON    :=
endif

# The CUDA runtime goes into the program; cuBLASLt is found on the machine that runs it. A kernel for wgmma that
# ptxas serialises (its remarks C75xx) is a failed build.
ifdef CUDA
CUDA_HOME ?= /usr/local/cuda
NVCC     := $(CUDA_HOME)/bin/nvcc
CUDASRC  := $(wildcard src/backend/cuda/*.cu)
TESTSRC  += $(wildcard tests/cuda/test_*.c)
SRC      += $(wildcard src/backend/cuda/*.c)
CPPFLAGS += -DDS_HAVE_CUDA -isystem $(CUDA_HOME)/include
LDFLAGS  += -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64
LDLIBS   += -lcublasLt -lcudart_static -ldl -lrt -lstdc++
CUDA_SM  ?= -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_80,code=sm_80 -gencode arch=compute_80,code=compute_80
NVFLAGS  := -std=c++17 -O3 -lineinfo -Isrc -Xcompiler -Wall,-fPIC $(CUDA_SM) -Xptxas -v
endif

# The Metal backend's host side is portable; METAL chooses what lies under it. The shaders and their tests build everywhere.
SHADERS  := $(wildcard src/backend/metal/shaders/*.metal)
ifdef METAL
SRC      += $(wildcard src/backend/metal/*.c)
CPPFLAGS += -DDS_HAVE_METAL -DDS_METAL_SOFTWARE=$(if $(filter sim,$(METAL)),true,false)
ifneq ($(METAL),sim)
ifneq ($(shell uname),Darwin)
$(error METAL=1 is for macOS; METAL=sim builds the Metal backend over a software device anywhere)
endif
METALOBJ := $(BUILD)/src/backend/metal/mtl_apple.o $(BUILD)/metal_sources.o
LDLIBS   += -framework Metal -framework Foundation -framework CoreGraphics
endif
endif
LIB     := $(BUILD)/libdeltascope.a
include tests/metal-sim/build.mk

OBJ     := $(SRC:%.c=$(BUILD)/%.o) $(CUDASRC:%.cu=$(BUILD)/%.cu.o) $(METALOBJ) \
           $(if $(filter arm64,$(CONF)),,$(BUILD)/src/server/page_html.o)
TOOLLIB := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/common/*.c tools/cmd/*.c))
TOOLS   := $(patsubst tools/%.c,$(BIN)/%,$(wildcard tools/*.c))
TOOLOBJ := $(TOOLS:$(BIN)/%=$(BUILD)/tools/%.o)
TESTS   := $(TESTSRC:%.c=$(BUILD)/%)
SHTESTS := $(wildcard tests/sh/test_*.sh)
FUZZERS := $(FUZZSRC:%.c=$(BUILD)/%)

# Fuzz targets: with libFuzzer in its configuration, elsewhere test programs that run the target's corpus.
FUZZ_MAIN := $(if $(filter fuzz,$(CONF)),,$(BUILD)/tests/fuzz/standalone.o)

# V=1 prints whole commands; otherwise one short line each, and none under make -s.
Q   := $(if $(V),,@)
say := @$(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),:,echo) "  "

# --- rules --------------------------------------------------------------------------------------------

all: $(TOOLS)
tests: $(LIB) $(TESTS) $(if $(FUZZ_MAIN),$(FUZZERS))
fuzzers: $(FUZZERS)
bench-kernels: $(BUILD)/bench/kernels
bench-mix: $(BUILD)/bench/kernels_mix

$(BUILD)/src/kernels/x86/%.o $(BUILD)/src/kernels/arm/%.o: CFLAGS += $(call isa_flags,$@)
$(BUILD)/%.o: %.c $(BUILD)/flags | $(BUILD)/needs
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) NVCC $@
	$(Q)$(NVCC) $(NVFLAGS) -MMD -MP -MF $(@:.o=.d) -MT $@ -c -o $@ $< 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas); exit 1; }
	@! grep -E 'C75[0-9][0-9]|error|warning' $(@:.o=.ptxas) || { rm -f $@; exit 1; }
$(BUILD)/%.o: %.m $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) OBJC $@
	$(Q)$(CC) -Isrc -O2 -g -Wall -Wextra -fno-objc-arc -mmacosx-version-min=14.0 -MMD -MP -c -o $@ $<
$(BUILD)/metal_sources.c: $(SHADERS) $(wildcard src/backend/metal/*.h src/backend/metal/shaders/*.h) tools/metal-sources.sh
	@mkdir -p $(@D)
	$(Q)sh tools/metal-sources.sh $(SHADERS) >$@.part && mv $@.part $@
$(BUILD)/metal_sources.o: $(BUILD)/metal_sources.c
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(LIB): $(OBJ)
	@rm -f $@
	$(say) AR $@
	$(Q)$(AR) rcs $@ $(OBJ)
# The page is a file that anyone can open; the program holds its text.
$(BUILD)/src/server/page_html.o: src/server/page.html src/server/embed.awk $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)awk -f src/server/embed.awk src/server/page.html >$(@:.o=.c)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $(@:.o=.c)
$(BIN)/deltascope-server: LDLIBS += -lmicrohttpd $(JSON)
$(BIN)/%: $(BUILD)/tools/%.o $(TOOLLIB) $(LIB)
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(FUZZ_MAIN) $(LIB)
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(if $(FUZZ_MAIN),,-fsanitize=fuzzer) $(LDFLAGS) -o $@ $^ $(LDLIBS) $(JSON)
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(TOOLLIB) $(LIB)
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
# The CUDA backend's host side over a device that only counts (tests/cuda/fake.c): no runtime, no kernels.
$(BUILD)/tests/cuda/test_%: $(BUILD)/tests/cuda/test_%.o $(BUILD)/tests/cuda/fake.o $(LIB)
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(filter-out -lcublasLt -lcudart_static,$(LDLIBS))
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(LIB)
	$(say) LD $@
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) $(JSON)

# The tools include each other as "common/x.h", and print the commit that they were built from: DS_COMMIT, a string.
COMMIT := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
$(BUILD)/tools/%.o $(BUILD)/bench/%.o: CPPFLAGS += -Itools -DDS_COMMIT='"$(COMMIT)"'
$(TOOLLIB) $(TOOLOBJ): $(BUILD)/commit

# As they are here: a file's own additions would otherwise reach its prerequisites.
FLAGS := $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(NVFLAGS) $(SIM_CXX) $(SIM_FLAGS) $(SIM_WATCH)
DEPS  := CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' sh tools/deps.sh

# Two stamps whose time changes only with their text: other flags or another commit rebuild what depends on them.
stamp = @mkdir -p $(@D); echo '$1' | cmp -s - $@ || echo '$1' > $@
$(BUILD)/flags: always
	$(call stamp,$(FLAGS))
$(BUILD)/commit: always
	$(call stamp,$(COMMIT))

# Names what is missing in a sentence, once per build folder.
$(BUILD)/needs:
	@mkdir -p $(@D)
	@$(DEPS) need $(if $(filter arm64,$(CONF)),compiler,build)
	@touch $@

# --- commands -----------------------------------------------------------------------------------------

JOBS := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
MAKE_ALL = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

deps:
	@$(DEPS) install build

# The stage table, the ladder and a sentence of a book, from nothing.
demo: deps
	@$(MAKE_ALL) all
	@sh tools/demo.sh $(BIN)

# T=NAME runs one case, or one program or script, alone.
test:
	@$(DEPS) install test
	@$(MAKE_ALL) all tests
	@DS_BIN=$(BIN) DS_BUILD=$(BUILD) sh tests/run.sh -n '$(T)' $(TESTS) $(FUZZERS) $(SHTESTS)

# S=NAME runs one step alone.
check-all:
	@$(DEPS) install check
	@MAKE='$(MAKE)' JOBS=$(JOBS) sh tests/check-all.sh $(S)

install: all
	mkdir -p $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/models
	cp $(TOOLS) $(DESTDIR)$(PREFIX)/bin/
	cp models/*.gguf $(DESTDIR)$(PREFIX)/models/

clean:
	rm -rf build bin

.PHONY: all tests fuzzers metal-tests bench-kernels bench-mix deps demo test check-all install clean always
.SECONDARY:
-include $(OBJ:.o=.d) $(TOOLLIB:.o=.d) $(TOOLOBJ:.o=.d) $(BUILD)/bench/kernels.d $(BUILD)/bench/kernels_mix.d $(TESTS:=.d) $(FUZZERS:=.d) $(SIM_OBJ:.o=.d) $(METALTESTS:=.d)
