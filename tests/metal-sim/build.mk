# The Metal shaders as C++ for the executor, and their tests (make metal-tests); with METAL=sim the software device in the programs.
#
# The sanitizers' instrumentation calls functions of hooks.cpp instead of their runtimes.
SIM        := tests/metal-sim
SIM_CXX    := $(if $(findstring clang,$(CC)),clang++,$(CXX))
SIM_WATCH  := -fsanitize=thread -fsanitize=alignment,bounds,shift,signed-integer-overflow,integer-divide-by-zero -ftrivial-auto-var-init=pattern \
              $(if $(findstring clang,$(SIM_CXX)),-mllvm -tsan-instrument-func-entry-exit=0,--param tsan-instrument-func-entry-exit=0)
SIM_FLAGS  := -O2 -g -Wall -Wextra $(if $(WERROR),-Werror) -ffp-contract=off -fsigned-char -Isrc -Itests
SHADER_OBJ := $(SHADERS:src/backend/metal/shaders/%.metal=$(BUILD)/$(SIM)/shaders/%.o)
SIM_OBJ    := $(BUILD)/$(SIM)/sim.o $(BUILD)/$(SIM)/hooks.o $(SHADER_OBJ)
METALTESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/metal/test_*.c))

# The shaders once more, each with a mistake in it.
FAULTS     := $(shell sed -n 's/^\([a-z][a-z_]*\) | .*/\1/p' $(SIM)/faults.txt)
FAULT_OBJ  := $(FAULTS:%=$(BUILD)/$(SIM)/faults/%.o)

ifeq ($(METAL),sim)
# One object: kernels announce themselves from constructors, which a linker would leave out of a library.
METALOBJ   := $(BUILD)/$(SIM)/device.o
LDLIBS     += -lstdc++
TESTSRC    += $(wildcard $(SIM)/test_*.c)
$(METALOBJ): $(SIM_OBJ) $(BUILD)/$(SIM)/mtl_sim.o
	$(Q)$(LD) -r -o $@ $^
endif

metal-tests: $(METALTESTS)
$(BUILD)/$(SIM)/%.o: $(SIM)/%.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) SIM $@
	$(Q)$(SIM_CXX) -std=c++17 $(SIM_FLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/$(SIM)/shaders/%.cpp: src/backend/metal/shaders/%.metal $(SIM)/wrap.py
	@mkdir -p $(@D)
	$(Q)python3 $(SIM)/wrap.py $< $@
$(BUILD)/$(SIM)/shaders/%.o: $(BUILD)/$(SIM)/shaders/%.cpp $(BUILD)/flags
	$(say) SIM $@
	$(Q)$(SIM_CXX) -std=c++14 $(SIM_FLAGS) $(SIM_WATCH) -fno-exceptions -fno-rtti -I$(SIM) -Isrc/backend/metal/shaders -MMD -MP -c -o $@ $<
$(BUILD)/$(SIM)/faults/%.cpp: $(SHADERS) $(SIM)/wrap.py $(SIM)/faults.txt
	@mkdir -p $(@D)
	$(Q)python3 $(SIM)/wrap.py src/backend/metal/shaders/$$(sed -n 's/^$* | \([a-z_.]*\) .*/\1/p' $(SIM)/faults.txt) $@ --plant $*
$(BUILD)/$(SIM)/faults/%.o: $(BUILD)/$(SIM)/faults/%.cpp $(BUILD)/flags
	$(say) SIM $@
	$(Q)$(SIM_CXX) -std=c++14 $(SIM_FLAGS) $(SIM_WATCH) -w -fno-exceptions -fno-rtti -I$(SIM) -Isrc/backend/metal/shaders -MMD -MP -c -o $@ $<
$(BUILD)/tests/metal/test_metal_faults: $(FAULT_OBJ)
$(BUILD)/$(SIM)/shaders/builtins.cpp: $(SIM)/builtins.metal $(SIM)/wrap.py
	@mkdir -p $(@D)
	$(Q)python3 $(SIM)/wrap.py $< $@
$(BUILD)/tests/metal/test_metal_executor: $(BUILD)/$(SIM)/shaders/builtins.o
$(BUILD)/tests/metal/%.o: CPPFLAGS += -Itests
$(METALTESTS): $(BUILD)/%: $(BUILD)/%.o $(SIM_OBJ) $(LIB)
	$(say) LD $@
	$(Q)$(SIM_CXX) $(LDFLAGS) -o $@ $^ $(LDLIBS)
