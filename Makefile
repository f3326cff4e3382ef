# GNU make. One build folder per configuration: build/$(CONF). See README.md for the commands.
CC      ?= cc
CONF    ?= release
ARCH    := $(shell $(CC) -dumpmachine | cut -d- -f1)
BUILD   := build/$(CONF)
BIN     ?= $(if $(filter release,$(CONF)),bin,$(BUILD)/bin)

CFLAGS_release := -O3 -g
CFLAGS_debug   := -O1 -g -DDS_POISON
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined -DDS_POISON
CFLAGS_tsan    := -O1 -g -fsanitize=thread
CFLAGS_noprof  := -O3 -g -DDS_NO_PROFILE
CFLAGS  += -std=c11 -Wall -Wextra -Wpedantic -fno-math-errno -ffp-contract=off -D_POSIX_C_SOURCE=200809L $(CFLAGS_$(CONF))
CPPFLAGS += -Iinclude -Isrc
LDLIBS  += -lutf8proc -lm -lpthread
COMMIT  := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

SRC  := $(wildcard src/base/*.c src/quant/*.c src/gguf/*.c src/token/*.c src/kernels/*.c src/kernels/ref/*.c \
          src/backend/*.c src/backend/cpu/*.c src/backend/split/*.c src/model/*.c src/prof/*.c src/synth/*.c src/engine/*.c)
ifneq (,$(filter x86_64 i686,$(ARCH)))
SRC  += $(wildcard src/kernels/x86/*.c)
endif
ifneq (,$(filter aarch64 arm64,$(ARCH)))
SRC  += $(wildcard src/kernels/arm/*.c)
endif
OBJ  := $(SRC:%.c=$(BUILD)/%.o)
LIB  := $(BUILD)/libdeltascope.a
TOOLLIB := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/common/*.c tools/cmd/*.c))
TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c tests/kernels/test_*.c tests/model/test_*.c))
TOOLS := $(BIN)/deltascope $(BIN)/modelbench

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

all: $(TOOLS)
$(BUILD)/src/kernels/x86/%.o $(BUILD)/src/kernels/arm/%.o: CFLAGS += $(call isa_flags,$@)
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(LIB): $(OBJ)
	@rm -f $@; $(AR) rcs $@ $(OBJ)
$(BIN)/%: $(BUILD)/tools/%.o $(TOOLLIB) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(LIB)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
tests: $(TESTS)
clean:
	rm -rf build bin
.PHONY: all tests clean
.SECONDARY:
-include $(OBJ:.o=.d) $(TESTS:=.d) $(TOOLLIB:.o=.d)
