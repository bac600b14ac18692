# Builds a source archive, Debian packages and static commands, byte-identical from build to build; included by GNUmakefile.
# docs/packages.md describes them.
#
#     make dist      $(PACKED)/moekit-VERSION.tar.xz: the committed tree
#     make deb       $(PACKED)/moekit_*.deb and one package for each plug-in, by dpkg-buildpackage from a source archive
#     make static    $(PACKED)/moekit-VERSION-MACHINE-linux.tar.xz: commands that need no library
#     STATIC=yes     links commands statically, in a separate folder; builds no plug-ins, which static commands cannot load
#
# ISAS and CUDA are passed on: ISAS='avx2 plain' speeds up a trial, CUDA=yes adds the package of kernels for GPUs.

PACKED ?= build/packages
STATIC ?=
ifneq ($(filter-out yes,$(STATIC)),)
$(error moekit: STATIC=$(STATIC) is not yes)
endif
ifdef STATIC
override CUDA := no
override MPI  := no
endif
# The code is position-independent, like Debian's static libraries.
STATIC_CFLAGS  := $(if $(STATIC),-DMOE_STATIC=1 -fPIE)
STATIC_LDFLAGS := $(if $(STATIC),-static-pie)

PACKING = PACKED='$(abspath $(PACKED))' ISAS='$(ISAS:plain-fma=plain)' CUDA='$(CUDA)' MACHINE='$(MACHINE)' CC='$(CC)'
dist:
	@$(PACKING) packaging/dist
deb:
	@$(PACKING) packaging/deb
static:
	@$(PACKING) packaging/static

.PHONY: dist deb static
