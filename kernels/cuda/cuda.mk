# CUDA and its emulator; included by GNUmakefile.
#
# kernels/cuda is compiled twice: by nvcc, where it is, into a plug-in that commands open at run time (lib/moekit/moe-cuda.so);
# and by a C++ compiler, always, for the emulator (tests/emu): a library for tests, and plug-ins of the same kind.
#
#     CUDA=auto   the plug-in where nvcc is, and a word where it is not     CUDA=yes   nvcc must be there     CUDA=no   without

CUDA ?= auto
CUDA_TOOLKIT := build/cuda-toolkit
NVCC ?= $(shell command -v nvcc || ls $(CUDA_TOOLKIT)/nvidia/cu13/bin/nvcc 2>/dev/null)
# Compilers that come through ccache by PATH bring nvcc along.
NVCC_BY := $(if $(findstring /ccache:,$(PATH):),ccache)
ifneq ($(filter-out auto yes no,$(CUDA)),)
$(error moekit: CUDA=$(CUDA) is neither auto, yes nor no)
endif
ifeq ($(CUDA)$(NVCC),yes)
$(error moekit: CUDA=yes, but there is no nvcc: `make deps-cuda` fetches it)
endif
CUDA_SOURCES := $(wildcard kernels/cuda/*.cu)
# A sanitiser's flavour is of the host and of the emulator.
CUDA_PLUGIN := $(if $(filter-out no,$(CUDA)),$(if $(NVCC),$(if $(SAN)$(if $(CUDA_SOURCES),,none),,$O/lib/moekit/moe-cuda.so)))

ifneq ($(filter default undefined,$(origin CXX)),)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
CXXFLAGS ?= -O1 -g
# With the instruction that fmaf is; without it the C library computes the same bits, slowly.
EMU_FMA   := $(shell grep -qsw avx2 /proc/cpuinfo && echo -mfma -mavx2)
EMU_WARNINGS := -Wall -Wextra -Wshadow -Wundef -Wformat=2 -Wno-missing-field-initializers
EMU_FLAGS := -std=c++17 -D_GNU_SOURCE -ffp-contract=off $(EMU_FMA) -fno-exceptions -fPIC -pthread -I. $(KIT:%=-I%/include) $(EMU_WARNINGS)
COMPILE_EMU = $(CXX) $(EMU_FLAGS) $(CXXFLAGS) $(SAN_FLAGS) $(if $(WERROR),-Werror)

EMU_SOURCES  := $(filter-out tests/emu/test_%,$(wildcard tests/emu/*.cc))
# gemm.cu is cuBLAS; the emulator has its own.
EMU_OBJECTS  := $(EMU_SOURCES:%.cc=$O/emu/%.o) $(patsubst %.cu,$O/emu/%.o,$(filter-out %/gemm.cu,$(CUDA_SOURCES)))
EMU_TESTS    := $(patsubst %.cc,$O/%,$(wildcard tests/emu/test_*.cc)) $(patsubst %.cu,$O/%,$(wildcard tests/emu/test_*.cu))
ifneq ($(filter thread,$(subst $(comma), ,$(SAN))),)
EMU_TESTS    :=                 # libtsan cannot follow fibers; the emulator looks for races itself
endif

# One binary for A100, H100 and B200 (and their smaller kin), and PTX for what comes later. Contraction is off: where a kernel
# means a fused multiply-add it says fmaf, on a GPU as on the emulator. What ptxas says is kept for tests/check/cuda.sh.
# CUDA_ARCH=90a: for that processor alone, in a third of the time.
CUDA_ARCH    ?=
CUDA_TARGETS := $(if $(CUDA_ARCH),-gencode arch=compute_$(CUDA_ARCH)$(comma)code=sm_$(CUDA_ARCH),\
                -gencode arch=compute_80$(comma)code=sm_80 -gencode arch=compute_90a$(comma)code=sm_90a \
                -gencode arch=compute_100$(comma)code=[sm_100$(comma)compute_100])
CUDA_FLAGS   := -std=c++17 -O3 -lineinfo --fmad=false -I. $(KIT:%=-I%/include) -Xcompiler -fPIC,-fvisibility=hidden -Xptxas -v $(CUDA_TARGETS)
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$O/cuda/%.o)

$O/cuda/%.o: %.cu $O/cuda/flags
	@mkdir -p $(@D)
	@echo "  nvcc $<"
	@$(NVCC_BY) $(NVCC) $(CUDA_FLAGS) $(if $(WERROR),-Werror all-warnings) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< \
	    2> $(@:.o=.ptxas) || { cat $(@:.o=.ptxas); exit 1; }
	@grep -v -e '^ptxas info' -e 'bytes stack frame' -e '^$$' $(@:.o=.ptxas) || true
# Where the compiler lies, cuBLAS may lie, too.
$O/cuda/kernels/cuda/gemm.o: private CUDA_FLAGS += -DGEMM_NVCC='"$(realpath $(NVCC))"'
$O/lib/moekit/moe-cuda.so: $(CUDA_OBJECTS)
	@mkdir -p $(@D)
	@echo "  link moe-cuda.so"
	@$(NVCC) -shared -o $@ $(CUDA_OBJECTS) -ldl
$O/cuda/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(NVCC) $(CUDA_FLAGS)' | cmp -s - $@ || echo '$(NVCC) $(CUDA_FLAGS)' > $@

ifeq ($(CUDA)$(NVCC),auto)
all: cuda-left-out
endif
cuda-left-out:
	@echo 'moekit: there is no nvcc, so CUDA is LEFT OUT (`make deps-cuda` fetches it; CUDA=no says that this is meant)' >&2
all: $(CUDA_PLUGIN)

# The compiler for GPUs from the Python package index, 100 MB, pinned; into the build folder, where it is looked for.
deps-cuda:
	@mkdir -p $(CUDA_TOOLKIT)
	@[ -x $(CUDA_TOOLKIT)/venv/bin/pip ] || python3 -m venv $(CUDA_TOOLKIT)/venv
	@$(CUDA_TOOLKIT)/venv/bin/pip install -q --no-deps --upgrade --target $(CUDA_TOOLKIT) nvidia-cuda-nvcc==13.0.88 \
	    nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
	@chmod -R u+x $(CUDA_TOOLKIT)/nvidia/cu13/bin $(CUDA_TOOLKIT)/nvidia/cu13/nvvm/bin
	@$(CUDA_TOOLKIT)/nvidia/cu13/bin/nvcc --version | tail -n 1
.PHONY: deps-cuda cuda-left-out

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
$O/emu/tests/emu/mma.o $O/race/tests/emu/mma.o $O/emu/tests/emu/gemm.o $O/race/tests/emu/gemm.o: private CXXFLAGS += -O3
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

# Plug-ins that are emulators: --device emu and emu-race, for command tests.
EMU_PLUGINS := $(if $(EMU_TESTS),$O/lib/moekit/moe-emu.so $(if $(SAN),,$O/lib/moekit/moe-emu-race.so))
$O/lib/moekit/moe-emu.so: $(EMU_OBJECTS)
	@mkdir -p $(@D)
	@echo "  link moe-emu.so"
	@$(CXX) -shared $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^
$O/lib/moekit/moe-emu-race.so: $(RACE_OBJECTS)
	@mkdir -p $(@D)
	@echo "  link moe-emu-race.so"
	@$(CXX) -shared $(CXXFLAGS) -pthread $(LDFLAGS) -o $@ $^ -ldl

# A unit test that opens one.
$O/tests/unit/test_slab: | $(EMU_PLUGINS)

$(EMU_TESTS): $O/tests/%: $O/emu/tests/%.o $O/libemu.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link tests/$*"
	@$(CXX) $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm

$(RACE_TESTS): $O/race/%: $O/race/%.o $O/libemu-race.a $O/libmoe.a
	@mkdir -p $(@D)
	@echo "  link race/$*"
	@$(CXX) $(CXXFLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm -ldl

# The tests of tests/kernel once more, with kernels/cuda on the emulator in place of the host's instruction sets.
EMU_KERNELS       := linear expert_ffn slab attention rows route coded
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

# The tests of tests/kernel once more, on the device that $MOE_TEST_DEVICE names (tests/device/mirror.h): every shape, and
# (small_NAME) few of them. And those of tests/device. tests/gpu/check runs them.
DEVICE_TESTS := $(EMU_KERNELS:%=$O/tests/device/kernel_%) $(EMU_KERNELS:%=$O/tests/device/small_%) \
                $O/tests/device/test_twin $O/tests/device/test_forward $O/tests/unit/test_slab $O/tests/device/mma_emu \
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
$O/tests/device/mma_emu: $O/emu/tests/device/mma.o $O/libemu.a
	@mkdir -p $(@D)
	@echo "  link tests/device/mma_emu"
	@$(CXX) $(CXXFLAGS) $(SAN_FLAGS) -pthread $(LDFLAGS) -o $@ $^ @$O/libs -lcmocka -lm
$O/tests/device/mma_cuda: $O/cuda/tests/device/mma.o $O/emu/tests/emu/mma.o
	@mkdir -p $(@D)
	@echo "  link tests/device/mma_cuda"
	@$(NVCC) -o $@ $^ $(if $(KIT),-L$(KIT)/lib -Xlinker -rpath=$(CURDIR)/$(KIT)/lib) -lcmocka
.PHONY: device-tests

# What a GPU has to say, on a machine that may have nothing but the CUDA toolkit, gcc, g++ and make: gpu-kit makes a folder of the
# libraries that it lacks, for tests/gpu/check and tests/gpu/bench to find there. DEVICE=emu tries all of it without a GPU.
DEVICE ?= cuda
gpu-kit:
	@tests/gpu/kit build/gpu-kit
gpu-check:
	@DEVICE='$(DEVICE)' tests/gpu/check
gpu-bench:
	@DEVICE='$(DEVICE)' tests/gpu/bench
.PHONY: gpu-kit gpu-check gpu-bench

-include $(EMU_OBJECTS:.o=.d) $(EMU_TESTS:$O/%=$O/emu/%.d) $(RACE_OBJECTS:.o=.d) $(RACE_TESTS:=.d) \
         $(EMU_KERNELS:%=$O/emu/tests/kernel/test_%.d) $(CUDA_OBJECTS:.o=.d) \
         $(EMU_KERNELS:%=$O/device/full/test_%.d) $(EMU_KERNELS:%=$O/device/small/test_%.d) $O/emu/tests/device/mma.d \
         $O/cuda/tests/device/mma.d $O/tests/device/mirror.d $O/tests/device/test_twin.d $O/tests/device/test_forward.d \
         $O/tests/gpu/bench_device.d
