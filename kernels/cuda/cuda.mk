# CUDA and its emulator; included by GNUmakefile.
#
# kernels/cuda is compiled twice: by nvcc, if it is installed, into a plug-in that commands open at run time
# (lib/moekit/moe-cuda.so); and always by a C++ compiler, for the emulator (tests/emu): a library for tests, and similar
# plug-ins.
#
#     CUDA=auto   builds the plug-in for the GPUs of this machine; without a GPU or nvcc, builds none and prints a note
#     CUDA=yes    builds the plug-in for A100, H100 and B200, or for CUDA_ARCH='90a ...'; requires nvcc
#     CUDA=no     builds no plug-in

CUDA ?= auto
CUDA_TOOLKIT := build/cuda-toolkit
NVCC ?= $(shell command -v nvcc || ls $(CUDA_TOOLKIT)/nvidia/cu13/bin/nvcc 2>/dev/null)
# If PATH selects compilers through ccache, nvcc runs through ccache, too.
NVCC_BY := $(if $(findstring /ccache:,$(PATH):),ccache)
ifneq ($(filter-out auto yes no,$(CUDA)),)
$(error moekit: CUDA=$(CUDA) is neither auto, yes nor no)
endif
ifeq ($(CUDA)$(NVCC),yes)
$(error moekit: CUDA=yes, but there is no nvcc: `make deps-cuda` fetches it)
endif
CUDA_SOURCES := $(wildcard kernels/cuda/*.cu)
# Architectures of this machine's GPUs, as nvcc names them: 9.0 is 90a; the kernels use no other architecture with an `a'.
CUDA_HERE := $(if $(filter auto,$(CUDA)),$(if $(NVCC),$(if $(wildcard /dev/nvidiactl /dev/dxg),$(shell nvidia-smi --query-gpu=compute_cap \
               --format=csv,noheader 2>/dev/null | tr -d '. ' | sed 's/^90$$/90a/' | sort -u))))
CUDA_ARCH ?= $(CUDA_HERE)
# Flavours with sanitisers contain the host's code and the emulator, not the plug-in.
CUDA_WANTED := $(if $(filter auto,$(CUDA)),$(CUDA_ARCH),$(filter yes,$(CUDA)))
CUDA_PLUGIN := $(if $(and $(CUDA_WANTED),$(NVCC),$(CUDA_SOURCES)),$(if $(SAN),,$O/lib/moekit/moe-cuda.so))

ifneq ($(filter default undefined,$(origin CXX)),)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
CXXFLAGS ?= -O2 -g1
# fmaf becomes one instruction; without that instruction, the C library computes the same bits slowly.
EMU_FMA   := $(shell grep -qsw avx2 /proc/cpuinfo && echo -mfma -mavx2)
# C++14, because <cmath> compiles in half the time without the special functions of C++17; gnu, for constants like 0x1p-1.
EMU_WARNINGS := -Wall -Wextra -Wshadow -Wundef -Wformat=2 -Wno-missing-field-initializers
EMU_FLAGS := -std=gnu++14 -D_GNU_SOURCE -ffp-contract=off $(EMU_FMA) -fno-exceptions -fPIC -pthread -I. $(KIT:%=-I%/include) $(EMU_WARNINGS)
COMPILE_EMU = $(CXX) $(EMU_FLAGS) $(CXXFLAGS) $(SAN_FLAGS) $(if $(WERROR),-Werror)

EMU_SOURCES  := $(filter-out tests/emu/test_%,$(wildcard tests/emu/*.cc))
# gemm.cu calls cuBLAS; the emulator replaces it by tests/emu/gemm.cc. The emulator's compiler reads the other sources in three
# groups, because parsing the headers takes half of the time of a source that is compiled alone. Those with flags of their own
# are compiled alone.
EMU_ALONE    := $(patsubst %,kernels/cuda/%.cu,attention expert_ffn linear plugin)
EMU_learn    := $(filter kernels/cuda/learn%,$(CUDA_SOURCES))
EMU_slab     := $(filter kernels/cuda/slab%,$(CUDA_SOURCES))
EMU_others   := $(filter-out %/gemm.cu $(EMU_ALONE) $(EMU_learn) $(EMU_slab),$(CUDA_SOURCES))
EMU_GROUPS   := learn slab others
EMU_OBJECTS  := $(EMU_SOURCES:%.cc=$O/emu/%.o) $(EMU_ALONE:%.cu=$O/emu/%.o) $(EMU_GROUPS:%=$O/emu/kernels/cuda/group_%.o)
# The files of tests/emu, and those of tests/kernel that run kernels/cuda on the emulator instead of the host's instruction
# sets. Not with TSan, because libtsan cannot follow fibers; the emulator detects races itself, in a flavour without sanitisers.
EMU_KERNELS  := linear expert_ffn slab attention rows route coded mix delta top learn learn_loss
EMU_FILES    := $(if $(filter thread,$(subst $(comma), ,$(SAN))),,$(patsubst tests/emu/test_%.cu,%,$(wildcard tests/emu/test_*.cu)))
EMU_TESTS    := $(if $(EMU_FILES),$O/tests/emu/run)
RACE_TESTS   := $(if $(SAN),,$(if $(EMU_FILES),$O/race/tests/emu/run))

# CUDA=yes: one binary for A100, H100 and B200 (and their smaller relatives), and PTX for later GPUs. Contraction is off:
# kernels write fused multiply-adds explicitly, as fmaf, for GPUs and for the emulator. ptxas's output is kept for
# tests/check/cuda.sh.
CUDA_PROCESSORS := $(or $(strip $(CUDA_ARCH)),80 90a 100)
CUDA_TARGETS := $(foreach arch,$(CUDA_PROCESSORS),-gencode arch=compute_$(arch)$(comma)code=$(if $(CUDA_ARCH),sm_$(arch),$(if $(filter 100,$(arch)),[sm_100$(comma)compute_100],sm_$(arch))))
CUDA_FLAGS   := -std=c++17 -O3 -lineinfo --fmad=false -I. $(KIT:%=-I%/include) -Xcompiler -fPIC,-fvisibility=hidden -Xptxas -v $(CUDA_TARGETS)
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$O/cuda/%.o)

$O/cuda/%.o: %.cu $O/cuda/flags
	@mkdir -p $(@D)
	@echo "  nvcc $<"
	@$(NVCC_BY) $(NVCC) $(CUDA_FLAGS) $(OWN_FLAGS) $(if $(WERROR),-Werror all-warnings) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< \
	    2> $(@:.o=.ptxas) || { cat $(@:.o=.ptxas); exit 1; }
	@grep -v -e '^ptxas info' -e 'bytes stack frame' -e '^$$' $(@:.o=.ptxas) || true
# Commands refuse a plug-in that was built from other sources (kernels/plugin.h). The emulator's may be, because `make all' does
# not build them.
PLUGIN_SOURCES := $(sort $(wildcard kernels/*.h kernels/plain/* kernels/cuda/*.cu kernels/cuda/*.h) common/base/float.h $(EMU_SOURCES) $(wildcard tests/emu/*.h))
PLUGIN_VERSION := $(firstword $(shell cat $(PLUGIN_SOURCES) | cksum))u
OPENER         := $O/common/tensor/device_cuda.o
$(OPENER) $(patsubst %,$O/%/kernels/cuda/plugin.o,emu race cuda): private OWN_FLAGS := -DCUDA_PLUGIN_VERSION=$(PLUGIN_VERSION)
$(OPENER) $(patsubst %,$O/%/kernels/cuda/plugin.o,emu race cuda): $O/plugin-version
$O/plugin-version: FORCE
	@mkdir -p $(@D)
	@echo $(PLUGIN_VERSION) | cmp -s - $@ || echo $(PLUGIN_VERSION) > $@
# Path of nvcc, relative to which gemm.cu searches for cuBLAS.
$O/cuda/kernels/cuda/gemm.o: private CUDA_FLAGS += -DGEMM_NVCC='"$(realpath $(NVCC))"'
$O/lib/moekit/moe-cuda.so: $(CUDA_OBJECTS) $O/cuda/flags
	@mkdir -p $(@D)
	@echo "  link moe-cuda.so"
	@$(NVCC) -shared -o $@ $(CUDA_OBJECTS) -ldl
	@echo $(CUDA_PROCESSORS) > $O/cuda/processors
$O/cuda/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(NVCC) $(CUDA_FLAGS)' | cmp -s - $@ || echo '$(NVCC) $(CUDA_FLAGS)' > $@

ifeq ($(CUDA)$(CUDA_PLUGIN)$(SAN),auto)
all: cuda-left-out
endif
cuda-left-out:
	@echo 'moekit: there is no $(if $(NVCC),GPU here,nvcc), so CUDA is LEFT OUT ($(if $(NVCC),CUDA=yes builds it all the same,`make deps-cuda` fetches it); CUDA=no says that this is meant)' >&2
all: $(CUDA_PLUGIN)

# Downloads nvcc from the Python package index (100 MB, pinned versions) into the build folder, where NVCC finds it.
deps-cuda:
	@mkdir -p $(CUDA_TOOLKIT)
	@[ -x $(CUDA_TOOLKIT)/venv/bin/pip ] || python3 -m venv $(CUDA_TOOLKIT)/venv
	@$(CUDA_TOOLKIT)/venv/bin/pip install -q --no-deps --upgrade --target $(CUDA_TOOLKIT) nvidia-cuda-nvcc==13.0.88 \
	    nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
	@chmod -R u+x $(CUDA_TOOLKIT)/nvidia/cu13/bin $(CUDA_TOOLKIT)/nvidia/cu13/nvvm/bin
	@$(CUDA_TOOLKIT)/nvidia/cu13/bin/nvcc --version | tail -n 1
# Compiles the kernels for one GPU architecture and checks them: the part of the long check that `make check` omits without a
# GPU.
check-cuda:
	@$(MAKE) --no-print-directory CUDA=yes CUDA_ARCH='$(or $(CUDA_ARCH),90a)' $O/lib/moekit/moe-cuda.so
	@MOE_BIN=$O/bin tests/check/cuda.sh
.PHONY: deps-cuda cuda-left-out check-cuda

# $(1): additional flags; $(2): the name to print.
define compile_emu
	@mkdir -p $(@D)
	@echo "  c++ $(2)"
	@$(COMPILE_EMU) -MMD -MP $(1) $(OWN_FLAGS) -c -o $@ $<
endef

$O/emu/%.o: %.cc $O/emu/flags
	$(call compile_emu,,$<)
$O/emu/%.o: %.cu $O/emu/flags
	$(call compile_emu,-x c++,$<)
$O/emu/tests/emu/mma.o $O/race/tests/emu/mma.o $O/emu/tests/emu/gemm.o $O/race/tests/emu/gemm.o: private CXXFLAGS += -O3
# The sources of a group are included before its last one. The launches in them have the same __FILE__ as in sources that are
# compiled alone, without the "./" of -include.
emu_included = -fmacro-prefix-map=./= $(patsubst %,-include %,$(filter-out $(lastword $(1)),$(1)))
define emu_group
$O/emu/kernels/cuda/group_$(1).o: $(lastword $(EMU_$(1))) $(EMU_$(1)) $O/emu/flags
	$$(call compile_emu,-x c++ $(call emu_included,$(EMU_$(1))),kernels/cuda: $(1))
$O/race/kernels/cuda/group_$(1).o: $(lastword $(EMU_$(1))) $(EMU_$(1)) $O/emu/flags
	$$(call compile_emu,-x c++ $$(RACE_FLAGS) $(call emu_included,$(EMU_$(1))),kernels/cuda: $(1) for races)
endef
$(foreach group,$(EMU_GROUPS),$(eval $(call emu_group,$(group))))
# Records of the flags and sources: a new list of sources rebuilds the groups.
$O/emu/flags: EMU_WORDS = $(COMPILE_EMU) $(RACE_FLAGS) $(foreach group,$(EMU_GROUPS),$(group) $(call emu_included,$(EMU_$(group))))
$O/emu/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(EMU_WORDS)' | cmp -s - $@ || echo '$(EMU_WORDS)' > $@

$O/libemu.a: $(EMU_OBJECTS)
	@rm -f $@
	@$(AR) rcs $@ $^

# The same for the race detector, which is part of the emulator: kernels call it at each access; libtsan and libubsan are not
# linked. -Og compiles in half the time of -O2; the detector, which runs at each access, uses -O2. The slowest kernels use -O1.
RACE_FLAGS := -fsanitize=thread,alignment -Og
$(patsubst %,$O/race/kernels/cuda/%.o,attention expert_ffn linear): private RACE_FLAGS += -O1
RACE_OBJECTS := $(EMU_OBJECTS:$O/emu/%=$O/race/%)
$O/emu/tests/emu/test_%.o: tests/emu/test_%.cu $O/emu/flags
	$(call compile_emu,-x c++ -Og -Dmain=test_$*_main,$<)
$O/race/tests/emu/test_%.o: tests/emu/test_%.cu $O/emu/flags
	$(call compile_emu,-x c++ $(RACE_FLAGS) -Dmain=test_$*_main,$< for races)
$O/race/%.o: %.cc $O/emu/flags
	$(call compile_emu,-DEMU_RACE=1,$< for races)
$O/race/%.o: %.cu $O/emu/flags
	$(call compile_emu,-x c++ $(RACE_FLAGS),$< for races)
$O/libemu-race.a: $(RACE_OBJECTS)
	@rm -f $@
	@$(AR) rcs $@ $^

# Plug-ins with the emulator, for command tests: --device emu and emu-race.
EMU_PLUGINS := $(if $(EMU_FILES),$O/lib/moekit/moe-emu.so $(if $(SAN),,$O/lib/moekit/moe-emu-race.so))
$O/lib/moekit/moe-emu.so: $(EMU_OBJECTS)
	@mkdir -p $(@D)
	@echo "  link moe-emu.so"
	@$(CXX) -shared $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^
$O/lib/moekit/moe-emu-race.so: $(RACE_OBJECTS)
	@mkdir -p $(@D)
	@echo "  link moe-emu-race.so"
	@$(CXX) -shared $(CXXFLAGS) -pthread $(LDFLAGS) -o $@ $^ -ldl

EMU_TEST_OBJECTS := $(EMU_FILES:%=$O/emu/tests/emu/test_%.o) $O/emu/tests/runner.o $(EMU_KERNELS:%=$O/emu/tests/kernel/test_%.o)
$O/emu/tests/kernel/test_%.o: tests/kernel/test_%.c $O/flags | $O/libs
	$(call compile,-DMOE_EMU=1 -Dmain=kernel_$*_main -Wno-missing-prototypes $(TEST_LEVEL))
$O/emu/tests/runner.o: tests/runner.c $O/emu/flags $(wildcard tests/emu/test_*)
	$(call compile_emu,-x c++ -DTEST_FILES='$(patsubst %,TEST(%),$(EMU_FILES)) $(patsubst %,KERNEL(%),$(EMU_KERNELS))',$<)
$O/tests/emu/run: $(EMU_TEST_OBJECTS) $O/libemu.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link tests/emu/run"
	@$(CXX) $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm
$O/race/tests/emu/run: $(EMU_TEST_OBJECTS:$O/emu/tests/emu/%=$O/race/tests/emu/%) $O/libemu-race.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link race/tests/emu/run"
	@$(CXX) $(CXXFLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm -ldl

# The tests of tests/kernel on the device that $MOE_TEST_DEVICE names (tests/device/mirror.h): with all shapes, and with a few
# (small_NAME); and the tests of tests/device. tests/gpu/check runs them.
DEVICE_TESTS := $(EMU_KERNELS:%=$O/tests/device/kernel_%) $(EMU_KERNELS:%=$O/tests/device/small_%) \
                $O/tests/device/test_twin $O/tests/device/test_forward $O/tests/device/test_slab $O/tests/device/test_upload \
                $O/tests/device/mma_emu \
                $(if $(CUDA_PLUGIN),$O/tests/device/mma_cuda)
device-tests: $(DEVICE_TESTS) $(EMU_PLUGINS)
$O/device/full/%.o: tests/kernel/%.c $O/flags | $O/libs
	$(call compile,-DMOE_DEVICE=1)
$O/device/small/%.o: tests/kernel/%.c $O/flags | $O/libs
	$(call compile,-DMOE_DEVICE=53)
$O/tests/device/test_twin.o: tests/device/test_twin.c $O/flags | $O/libs
	$(call compile,-DMOE_DEVICE=1)
$O/tests/device/kernel_%: $O/device/full/test_%.o $O/tests/device/mirror.o $O/libmoe.a
	@echo "  link tests/device/kernel_$*"
	@$(LINK) -o $@ $^ @$O/libs -lcmocka -lm
$O/tests/device/small_%: $O/device/small/test_%.o $O/tests/device/mirror.o $O/libmoe.a
	@echo "  link tests/device/small_$*"
	@$(LINK) -o $@ $^ @$O/libs -lcmocka -lm
$O/tests/device/test_twin: $O/tests/device/test_twin.o $O/tests/device/mirror.o $O/libemu.a $O/libmoe.a
	@echo "  link tests/device/test_twin"
	@$(CXX) $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm
# A separate program, because all unit tests together need more of libarchive than a kit's static libraries resolve.
$O/tests/device/slab_runner.o: tests/runner.c $O/flags | $O/libs
	$(call compile,-DTEST_FILES='TEST(slab)')
$O/tests/device/test_slab: $O/tests/device/slab_runner.o $O/tests/unit/test_slab.o $O/libmoe.a
	@echo "  link tests/device/test_slab"
	@$(LINK) -o $@ $^ @$O/libs -lcmocka -lm
$O/tests/device/mma_emu: $O/emu/tests/device/mma.o $O/libemu.a
	@mkdir -p $(@D)
	@echo "  link tests/device/mma_emu"
	@$(CXX) $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm
$O/tests/device/mma_cuda: $O/cuda/tests/device/mma.o $O/emu/tests/emu/mma.o
	@mkdir -p $(@D)
	@echo "  link tests/device/mma_cuda"
	@$(NVCC) -o $@ $^ $(if $(KIT),-L$(KIT)/lib -Xlinker -rpath=$(CURDIR)/$(KIT)/lib) -lcmocka
.PHONY: device-tests

# Tests and measurements on a GPU, for machines with only the CUDA toolkit, gcc, g++ and make: gpu-kit packs the libraries that
# such a machine lacks, and tests/gpu/all finds them there. DEVICE=emu runs everything without a GPU.
DEVICE ?= cuda
gpu-kit:
	@tests/gpu/kit build/gpu-kit build/gpu-kit.tar.xz
gpu-all:
	@DEVICE='$(DEVICE)' tests/gpu/all
gpu-check:
	@DEVICE='$(DEVICE)' tests/gpu/all check
gpu-bench:
	@DEVICE='$(DEVICE)' tests/gpu/all bench
.PHONY: gpu-kit gpu-all gpu-check gpu-bench

-include $(EMU_OBJECTS:.o=.d) $(EMU_TEST_OBJECTS:.o=.d) $(RACE_OBJECTS:.o=.d) $(EMU_FILES:%=$O/race/tests/emu/test_%.d) \
         $(CUDA_OBJECTS:.o=.d) $(EMU_KERNELS:%=$O/device/full/test_%.d) $(EMU_KERNELS:%=$O/device/small/test_%.d) \
         $O/emu/tests/device/mma.d $O/cuda/tests/device/mma.d $O/tests/device/mirror.d $O/tests/device/test_twin.d \
         $O/tests/device/test_forward.d $O/tests/device/test_upload.d $O/tests/gpu/bench_device.d
