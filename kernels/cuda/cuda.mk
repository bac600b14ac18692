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

$(EMU_TESTS): $O/tests/emu/%: $O/emu/tests/emu/%.o $O/libemu.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link tests/emu/$*"
	@$(CXX) $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm

-include $(EMU_OBJECTS:.o=.d) $(EMU_TESTS:$O/%=$O/emu/%.d)
