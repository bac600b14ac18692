# The plug-in over MPI; included by GNUmakefile.
#
#     MPI=auto   builds lib/moekit/moe-ranks-mpi.so if mpicc is installed; without it, commands run as one process
#     MPI=yes    builds it; requires mpicc
#     MPI=no     does not build it

MPI   ?= auto
MPICC ?= $(shell command -v mpicc)
ifneq ($(filter-out auto yes no,$(MPI)),)
$(error moekit: MPI=$(MPI) is neither auto, yes nor no)
endif
ifeq ($(MPI)$(MPICC),yes)
$(error moekit: MPI=yes, but there is no mpicc: `make deps-mpi` installs it)
endif
MPI_SOURCE := common/ranks/mpi/mpi.c
# Not with sanitisers, which would report many errors in MPI's own code.
MPI_PLUGIN := $(if $(filter auto yes,$(MPI)),$(if $(MPICC),$(if $(SAN),,$O/lib/moekit/moe-ranks-mpi.so)))
COMPILE_MPI = $(MPICC) $(ALL_CFLAGS) -fPIC -fvisibility=hidden $(if $(WERROR),-Werror)

$O/lib/moekit/moe-ranks-mpi.so: $(MPI_SOURCE) common/ranks/plugin.h $O/mpi-flags
	@mkdir -p $(@D)
	@echo "  link moe-ranks-mpi.so"
	@$(COMPILE_MPI) -shared -o $@ $< $(LDFLAGS)
$O/mpi-flags: FORCE
	@mkdir -p $(@D)
	@echo '$(COMPILE_MPI)' | cmp -s - $@ || echo '$(COMPILE_MPI)' > $@
all: $(MPI_PLUGIN)

# Installs Open MPI, on Debian and Ubuntu.
deps-mpi:
	@PACKAGES='openmpi-bin libopenmpi-dev' .ci/install-deps
.PHONY: deps-mpi
