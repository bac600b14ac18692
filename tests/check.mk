# The jobs of `make check`, included by GNUmakefile: a job per file of tests, each a target with its own prerequisites, so that
# one pool of processes builds and tests at once, in every flavour (tests/run-checks).
#
#     make check                    everything that must be green
#     make check-long               also the slower checks: docs/checks.md has the table
#     make check ONLY='asan/cli/*'  jobs by name; ONLY=? lists them
#
# The names of jobs are FLAVOUR/FOLDER/FILE. run-job gives a job its environment and one processor, unless it is one of THREADED
# or WAITING.

check: $(AFTER_DEPS)
	@WERROR='$(WERROR)' CUDA='$(CUDA)' ONLY='$(ONLY)' tests/run-checks
check-long: $(AFTER_DEPS)
	@WERROR='$(WERROR)' CUDA='$(CUDA)' ONLY='$(ONLY)' tests/run-checks --long

LONG  ?=
LABEL := $(if $(findstring address,$(SAN)),asan,$(if $(SAN),tsan,normal))
# Kernels on the emulator run where it looks for races, and in the long check as they are, too.
# $(call when,normal asan,WORDS): words for these flavours alone
when   = $(if $(filter $(LABEL),$(1)),$(2))
always = $(if $(LONG),normal asan,normal)

GATES    := $(patsubst tests/check/%.sh,%,$(wildcard tests/check/*.sh))
SUITES   := $(patsubst tests/cli/%.bats,%,$(wildcard tests/cli/*.bats))
TORTURED  = $(shell tests/torture/calls --list)
# Under sanitisers: what reads damaged input, and every command once, as man pages show it; all but what wants the emulator, and
# but for what computes by the minute, which the long check has: with heads, whose code is run by examples, fuzz drivers and
# head_experts, and statistics.
AT_LENGTH := draft_head head_golden head_guess train_golden evaluation branches compare regret
SANITISED_SUITES := $(if $(LONG),$(SUITES),examples damaged)
SANITISED_FILES   = $(filter-out $(if $(LONG),,slab $(AT_LENGTH)),$(call files,tests/unit))

JOBS  = $(call when,normal,$(GATES:%=gate/%)) \
        $(addprefix $(LABEL)/, \
          $(patsubst %,unit/%,$(if $(SAN),$(SANITISED_FILES),$(call files,tests/unit))) \
          $(patsubst %,kernel/%,$(call files,tests/kernel)) \
          $(if $(LONG),$(call when,normal,$(patsubst %,long/%,$(call files,tests/long)))) \
          $(call when,$(always),$(EMU_FILES:%=emu/%) $(if $(LONG),$(EMU_KERNELS:%=emu/kernel_%))) \
          $(call when,normal,$(EMU_FILES:%=races/%) $(EMU_KERNELS:%=races/kernel_%)) \
          $(call when,normal asan,$(FUZZ_DRIVERS:%=fuzz/%)) \
          $(call when,$(always),$(TORTURED:%=torture/%)) \
          $(if $(LONG),$(call when,normal asan,torture/texts)) \
          $(call when,normal,torture/kills $(SUITES:%=cli/%) $(if $(LONG),built aarch64)) \
          $(call when,asan,$(SANITISED_SUITES:%=cli/%)))
# These jobs test threads and get all processors. Each pattern must match a job.
THREADED := %/unit/thread_pool %/unit/engine %/unit/facts %/unit/slab %/cli/identity %/cli/host %/cli/decode %/cli/bench-gate
# These jobs wait most of the time, for starts of mpirun or for time limits, and share a processor with another job.
WAITING := %/cli/ranks %/cli/gpu-scripts

list-jobs:
	$(eval LISTED := $(JOBS))
	$(if $(call when,normal,yes),$(foreach job,$(THREADED) $(WAITING),$(if $(filter $(job),$(LISTED)),,$(error tests/check.mk: no job is called $(job); correct THREADED or WAITING))))
	@printf '%s\n' $(LISTED)
# RUN: those to run, in the order in which they should begin.
check-jobs: $(RUN:%=build/check/%.job)

# $(call job,NAME PATTERN,WHAT MUST BE THERE,COMMAND): `%' of the pattern is $* in the command.
define job
build/check/$(1).job: $(2) FORCE
	@O='$O' exec tests/run-job $$(if $$(filter $(THREADED),$$(@:build/check/%.job=%)),--threads,$$(if $$(filter $(WAITING),$$(@:build/check/%.job=%)),--waits)) '$$(@:build/check/%.job=%)' $(3)
endef
PROGRAMS := $(BINARIES) $(MPI_PLUGIN) $O/pocket.moe $O/draft.moe
EMULATOR := $(if $(SAN),$(if $(LONG),$(EMU_PLUGINS)),$(EMU_PLUGINS))
$(eval $(call job,gate/%,$(BINARIES) $(CUDA_PLUGIN),tests/check/$$*.sh))
$(eval $(call job,$(LABEL)/unit/%,$O/tests/unit/run $(EMULATOR) $(MPI_PLUGIN),$O/tests/unit/run $$*))
$(eval $(call job,$(LABEL)/kernel/%,$O/tests/kernel/run,$O/tests/kernel/run $$*))
$(eval $(call job,$(LABEL)/long/%,$O/tests/long/run,$O/tests/long/run $$*))
$(eval $(call job,$(LABEL)/emu/%,$O/tests/emu/run,$O/tests/emu/run $$*))
$(eval $(call job,$(LABEL)/races/%,$O/race/tests/emu/run,$O/race/tests/emu/run $$*))
$(eval $(call job,$(LABEL)/fuzz/%,$(FUZZ_RUNNER),$(FUZZ_RUNNER) $$* -n $(if $(LONG),10000,$(if $(SAN),100,300)) -t $(if $(LONG),100,60) tests/fuzz/corpus/$$*))
$(eval $(call job,$(LABEL)/torture/kills,$(PROGRAMS),tests/torture/kills $O --moments $(if $(LONG),50,5)))
$(eval $(call job,$(LABEL)/torture/texts,$(PROGRAMS),tests/torture/texts $O))
$(eval $(call job,$(LABEL)/torture/%,$(PROGRAMS) $O/tests/torture/fail.so,tests/torture/calls $O --command $$* $(if $(LONG),,--most 25)))
# Jobs that only other machines run.
$(eval $(call job,$(LABEL)/built,$(DEVICE_TESTS) $O/tests/gpu/bench_device $O/tests/peers/tokenize $O/tests/bench/routes $O/tests/bench/drafting $(BENCHES),echo 1..1 && echo ok 1 - programs for GPUs$(comma) peers and speed))
$(eval $(call job,$(LABEL)/aarch64,,tests/aarch64))
$(eval $(call job,$(LABEL)/cli/%,$(PROGRAMS) $(EMULATOR),tests/run-bats tests/cli/$$*.bats))
# Programs for the machine with a GPU, linked once more with the kit there.
build/check/$(LABEL)/cli/gpu-scripts.job: $(if $(SAN),,$O/tests/device/test_slab $O/tests/device/test_forward $O/tests/device/test_upload $(addprefix $O/tests/device/small_,linear mix route))

.PHONY: check check-long check-jobs list-jobs
