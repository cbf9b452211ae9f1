"""The same training without Holdfast, as such loops are usually written.

Same model, same data, same seed. Every `--save-every` steps it writes a checkpoint and renames it
into place; started again, it goes on from there. A SIGTERM ends it like any Python program. Beside
that, it writes down what it did when (`--history`), so that the same ledger can judge both.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lm"))

import jax
import numpy as np
from data import Windows, read_corpus
from train import evaluate, fail_once, parser, training, write_result


def main():
    p = parser()
    p.add_argument("--checkpoint", type=Path, required=True)
    p.add_argument("--save-every", type=int, default=50)
    p.add_argument("--history", type=Path, required=True)
    p.add_argument("--attempt", type=int, required=True)
    args = p.parse_args()
    corpus, held_out = read_corpus(args.data, args.context + 1)
    init_state, train_step, eval_loss = training(args)
    batches = Windows(corpus, args.batch, args.context + 1, args.seed)

    with args.history.open("a", buffering=1) as history:

        def record(event, start, **facts):
            facts.update(event=event, attempt=args.attempt, start=start, end=time.monotonic())
            history.write(json.dumps(facts) + "\n")
            return facts["end"]

        now = time.monotonic()
        done, state = 0, init_state()
        if args.checkpoint.exists():
            done, state = load(args.checkpoint, state, batches)
        now = record("restore", now, step=done)
        like = jax.ShapeDtypeStruct((args.batch, args.context + 1), np.uint8)
        train_step = train_step.lower(state, like).compile()
        now = record("span", now, kind="compile")

        losses = []
        for step in range(done + 1, args.steps + 1):
            state, train_loss = train_step(state, next(batches))
            if args.fail_at and step == int(args.fail_at[0]):
                fail_once(step, Path(args.fail_at[1]))
            train_loss.block_until_ready()  # what is logged is done, not dispatched
            losses.append(train_loss)
            if step % args.log_every == 0 or step == args.steps:
                print(f"step {step}/{args.steps}: loss {np.mean(losses):.3f}", flush=True)
                losses.clear()
            now = record("step", now, step=step)
            if args.eval_every and step % args.eval_every == 0:
                windows = Windows(held_out, args.batch, args.context + 1, args.seed)
                score = evaluate(eval_loss, state["params"], windows)
                print(f"step {step}/{args.steps}: held-out loss {score:.3f}", flush=True)
                now = record("span", now, kind="custom:eval")
            if step % args.save_every == 0 or step == args.steps:
                save(args.checkpoint, step, state, batches)
                now = record("span", now, kind="save")

    if args.out:
        write_result(args.out, args.steps, state["params"])


def save(path: Path, step: int, state, batches):
    leaves = jax.tree.leaves({**state, "key": jax.random.key_data(state["key"])})
    draft = path.with_suffix(".tmp.npz")
    np.savez(draft, *leaves, step=step, drawn=batches.drawn)
    draft.rename(path)


def load(path: Path, like, batches):
    with np.load(path) as stored:
        batches.drawn = int(stored["drawn"])
        leaves = [stored[f"arr_{i}"] for i in range(len(jax.tree.leaves(like)))]
        step = int(stored["step"])
    state = jax.tree.unflatten(jax.tree.structure(like), map(jax.numpy.asarray, leaves))
    return step, {**state, "key": jax.random.wrap_key_data(state["key"])}


if __name__ == "__main__":
    main()
