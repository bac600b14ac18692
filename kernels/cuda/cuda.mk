# CUDA and its emulator; included by GNUmakefile.
#
# The sources of kernels/cuda are compiled by a C++ compiler for the emulator (tests/emu), always.

ifeq ($(origin CXX),default)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
CXXFLAGS ?= -O1 -g
# With the instruction that fmaf is; without it the C library computes the same bits, slowly.
EMU_FMA   := $(shell grep -qsw fma /proc/cpuinfo && echo -mfma)
EMU_WARNINGS := -Wall -Wextra -Wshadow -Wundef -Wformat=2 -Wno-missing-field-initializers
EMU_FLAGS := -std=c++17 -D_GNU_SOURCE -ffp-contract=off $(EMU_FMA) -fno-exceptions -fPIC -pthread -I. $(EMU_WARNINGS)
COMPILE_EMU = $(CXX) $(EMU_FLAGS) $(CXXFLAGS) $(SAN_FLAGS) $(if $(WERROR),-Werror)

CUDA_SOURCES := $(wildcard kernels/cuda/*.cu)
EMU_SOURCES  := $(filter-out tests/emu/test_%,$(wildcard tests/emu/*.cc))
EMU_OBJECTS  := $(EMU_SOURCES:%.cc=$O/emu/%.o) $(CUDA_SOURCES:%.cu=$O/emu/%.o)
EMU_TESTS    := $(patsubst %.cc,$O/%,$(wildcard tests/emu/test_*.cc)) $(patsubst %.cu,$O/%,$(wildcard tests/emu/test_*.cu))
ifneq ($(filter thread,$(subst $(comma), ,$(SAN))),)
EMU_TESTS    :=                 # libtsan cannot follow fibers; the emulator looks for races itself
endif

# $(1): flags of its own, $(2): what it is called.
define compile_emu
	@mkdir -p $(@D)
	@echo "  c++ $(2)"
	@$(COMPILE_EMU) -MMD -MP $(1) -c -o $@ $<
endef

$O/emu/%.o: %.cc $O/emu/flags
	$(call compile_emu,,$<)
$O/emu/%.o: %.cu $O/emu/flags
	$(call compile_emu,-x c++,$<)
$O/emu/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(COMPILE_EMU)' | cmp -s - $@ || echo '$(COMPILE_EMU)' > $@

$O/libemu.a: $(EMU_OBJECTS)
	@rm -f $@
	@$(AR) rcs $@ $^

# Once more for the race detector, which is in the emulator: kernels call it at each access, libtsan is not linked. Only in the
# flavour without sanitisers.
RACE_OBJECTS := $(EMU_OBJECTS:$O/emu/%=$O/race/%)
RACE_TESTS   := $(if $(SAN),,$(EMU_TESTS:$O/tests/%=$O/race/tests/%))
$O/race/tests/emu/test_%.o: tests/emu/test_%.cu $O/emu/flags
	$(call compile_emu,-x c++ -fsanitize=thread,$< for races)
$O/race/tests/emu/test_%.o: tests/emu/test_%.cc $O/emu/flags
	$(call compile_emu,-fsanitize=thread,$< for races)
$O/race/%.o: %.cc $O/emu/flags
	$(call compile_emu,-DEMU_RACE=1,$< for races)
$O/race/%.o: %.cu $O/emu/flags
	$(call compile_emu,-x c++ -fsanitize=thread,$< for races)
$O/libemu-race.a: $(RACE_OBJECTS)
	@rm -f $@
	@$(AR) rcs $@ $^

$(EMU_TESTS): $O/tests/%: $O/emu/tests/%.o $O/libemu.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link tests/$*"
	@$(CXX) $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm

$(RACE_TESTS): $O/race/%: $O/race/%.o $O/libemu-race.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link race/$*"
	@$(CXX) $(CXXFLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm -ldl

# The tests of tests/kernel once more, with kernels/cuda on the emulator in place of the host's instruction sets.
EMU_KERNELS       := linear expert_ffn attention rows route coded
EMU_KERNEL_TESTS  := $(if $(EMU_TESTS),$(EMU_KERNELS:%=$O/tests/emu/kernel_%))
RACE_KERNEL_TESTS := $(if $(RACE_TESTS),$(EMU_KERNELS:%=$O/race/tests/emu/kernel_%))
$O/emu/tests/kernel/%.o: tests/kernel/%.c $O/flags | $O/libs
	$(call compile,-DMOE_EMU=1)
$(EMU_KERNEL_TESTS): $O/tests/emu/kernel_%: $O/emu/tests/kernel/test_%.o $O/libemu.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link tests/emu/kernel_$*"
	@$(CXX) $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm
$(RACE_KERNEL_TESTS): $O/race/tests/emu/kernel_%: $O/emu/tests/kernel/test_%.o $O/libemu-race.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link race/tests/emu/kernel_$*"
	@$(CXX) $(CXXFLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm -ldl

-include $(EMU_OBJECTS:.o=.d) $(EMU_TESTS:$O/%=$O/emu/%.d) $(RACE_OBJECTS:.o=.d) $(RACE_TESTS:=.d) \
         $(EMU_KERNELS:%=$O/emu/tests/kernel/test_%.d)
