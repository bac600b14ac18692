#!/bin/sh
# Jakiro's paper (arXiv 2502.06282) in small: heads for the pocket model, each trained by moe-draft-train on the model's own
# greedy answers with every seed, decode held-out prompts; tests/bench/jakiro.py prints tokens per iteration with intervals over
# seeds. `make bench-jakiro` calls it; its files stay in build/bench/jakiro, and existing ones are reused.
#
#     equal size   eagle1 of inner width 384, jakiro's two experts of 192 and jakiro_star's two of 288 have 442,752 weights and a
#                  router; the additional experts of table 3 have the same size, so that a token uses as many weights
#     table 3      N experts, of which a token uses 2
#     table 4      a head trained for each row: the mixture alone, with the contrast of the next token, with the last two levels
#                  from one forward and a plain sum instead of the contrast, and with everything
#     T = 1        four draws of each head by rejection, which keeps the model's distribution exactly; and of Jakiro* by its own
#                  program's rule, which does not
#
# MOE_BENCH_SEEDS="1 2 3", MOE_BENCH_EPOCHS=N (16), MOE_BENCH_PROMPTS=N held-out prompts (240, the first ones of each task),
# MOE_BENCH_DRAWS="1 2 3 4", MOE_BENCH_HEADS="eagle1 jakiro jakiro_star" (all of them), MOE_BENCH_CASES="chain tree drawn
# published", the last two at T = 1. Everything takes an hour and a half of one processor; 4 epochs and 60 prompts half an hour.
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
seeds=${MOE_BENCH_SEEDS:-1 2 3}
draws=${MOE_BENCH_DRAWS:-1 2 3 4}
epochs=${MOE_BENCH_EPOCHS:-16}
prompts=${MOE_BENCH_PROMPTS:-240}
work=$out/jakiro
tree=dynamic:total=25,depth=6,topk=4
mkdir -p "$work"

once "$out/pocket.moe" moe-convert -q "$pocket/model"
# shellcheck disable=SC2086
once "$work/features.moes" moe-profile features -q $threads -m "$out/pocket.moe" -n 100 --layers final --dtype f32 --cut 128 \
    "$pocket/calib.jsonl"
jq -sc --argjson n "$prompts" 'group_by(.task) | map(.[:$n / 4]) | add | .[]' "$pocket/heldout.jsonl" > "$work/held-$prompts.jsonl"

# The heads: a name, and the training options.
heads() {
    cat << END
eagle1 --arch eagle1 --inner 384
jakiro --arch jakiro
jakiro-none --arch jakiro --second none
jakiro-next --arch jakiro --ahead 1
jakiro-sum --arch jakiro --second sum
jakiro-3 --arch jakiro --experts 3
jakiro-4 --arch jakiro --experts 4
jakiro-5 --arch jakiro --experts 5
jakiro_star --arch jakiro_star --inner 288
medusa --arch medusa
hydra --arch hydra
END
}

# asked NAME CASE: whether this case of this head is requested
asked() {
    case " ${MOE_BENCH_HEADS:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
    case " ${MOE_BENCH_CASES:-$2} " in *" $2 "*) ;; *) return 1 ;; esac
}

train() {
    # shellcheck disable=SC2046,SC2086
    once "$work/$1-$2-$epochs.moe" moe-draft-train train -q $threads -m "$out/pocket.moe" \
        $(heads | sed -n "s/^$1 //p") --rate 0.004 --epochs "$epochs" --cut 128 --seed "$2" "$work/features.moes"
}

# decode NAME SEED CASE NUMBER OPTIONS...: one JSON object per prompt; NUMBER of the draw, or none
decode() {
    asked "$1" "$3" || return 0
    train "$1" "$2"
    case=$work/run-$1-$2-$epochs-$prompts-$3${4:+-$4}.jsonl
    head=$work/$1-$2-$epochs.moe
    shift 4
    # shellcheck disable=SC2086
    once "$case" moe-decode -q $threads -m "$out/pocket.moe" -n 64 --json --draft "head:file=$head" "$@" "$work/held-$prompts.jsonl"
}

for seed in $seeds; do
    for name in $(heads | cut -d ' ' -f 1); do
        decode "$name" "$seed" chain "" -K 5
        decode "$name" "$seed" tree "" --tree $tree
    done
done
own=static:file=trees/jakiro-star.json
for draw in $draws; do
    for seed in $seeds; do
        drawing="--temperature 1 --seed $draw"
        # shellcheck disable=SC2086
        {
            decode eagle1 "$seed" drawn "$draw" $drawing --accept rejection --tree $tree
            decode jakiro "$seed" drawn "$draw" $drawing --accept rejection --tree $tree
            decode jakiro_star "$seed" drawn "$draw" $drawing --accept rejection --tree $own
            decode jakiro_star "$seed" published "$draw" $drawing --accept jakiro-star --tree $own
        }
    done
done
python3 tests/bench/jakiro.py "$work" "$epochs" "$prompts"
