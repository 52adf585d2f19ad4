"""Saves models and checkpoints at an address in processes that are killed while they do: what is left must be whole.

``python -m tests.rigs.killed_savers ADDRESS KILLS`` forks one process after the other. Each one checks what those
before have left, saves a number in all weights in one way after the other, and is killed in the middle. It prints how
many were killed in the middle of which way.
"""

import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback

WAYS = ("model.keras", "model.weights.h5", "checkpoint", "backup", "exported")


class Saver:
    """What one process saves with."""

    def __init__(self, base):
        import keras
        import tensorflow as tf

        self.base, self.tf, self.keras = base, tf, keras
        self.model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(512), keras.layers.Dense(128)])
        self.model.compile(keras.optimizers.SGD(), "mse")
        self.checkpoint = tf.train.Checkpoint(model=self.model)
        self.manager = tf.train.CheckpointManager(self.checkpoint, f"{base}/checkpoints", max_to_keep=2)
        self.backup = keras.callbacks.BackupAndRestore(f"{base}/backup", double_checkpoint=True)
        self.backup.set_model(self.model)

    def fill(self, number):
        self.model.set_weights([weight * 0 + number for weight in self.model.get_weights()])

    def save(self, way, number):
        match way:
            case "model.keras":
                self.model.save(f"{self.base}/{way}")
            case "model.weights.h5":
                self.model.save_weights(f"{self.base}/{way}", overwrite=True)
            case "checkpoint":
                self.manager.save()
            case "backup":
                self.backup.on_epoch_end(number)
            case "exported":
                self.model.export(f"{self.base}/exported/{number}", verbose=False)

    def saved(self, way):
        """Return the number that was saved that way last, or 0; raise if that cannot be read, or is a mixture."""
        gfile, path = self.tf.io.gfile, f"{self.base}/{way}"
        self.fill(0)
        weights = None
        match way:
            case "model.keras" if gfile.exists(path):
                weights = self.keras.models.load_model(path).get_weights()
            case "model.weights.h5" if gfile.exists(path):
                self.model.load_weights(path)
            case "checkpoint" if self.manager.latest_checkpoint:
                self.checkpoint.restore(self.manager.latest_checkpoint).assert_existing_objects_matched()
            case "backup":
                self.backup.on_train_begin()
            case "exported" if gfile.exists(path):
                whole = [int(name) for name in gfile.listdir(path) if self.is_model(f"{path}/{name}")]
                for name in {*map(int, gfile.listdir(path))} - {max(whole, default=0)}:
                    gfile.rmtree(f"{path}/{name}")
                if whole:
                    weights = [one.numpy() for one in self.tf.saved_model.load(f"{path}/{max(whole)}").variables]
        found = {float(value) for one in weights or self.model.get_weights() for value in one.flat}
        assert len(found) == 1, (way, found)
        return int(found.pop())

    def is_model(self, folder):
        return self.tf.saved_model.contains_saved_model(folder)


def work(base, before, say):
    """Check what is there against what was begun and done of each way, then save until the end."""
    saver = Saver(base)
    saver.tf.io.gfile.makedirs(base)
    for way in WAYS:
        begun, done = before.get(way, (0, 0))
        found = saver.saved(way)
        assert found in (begun, done), f"{way}: {found} is there; {begun} was begun last, and {done} done"
        say(f"found {way} {found}")
    number = max((begun for begun, _ in before.values()), default=0)
    while True:
        number += 1
        saver.fill(number)
        for way in WAYS:
            say(f"begin {way} {number}")
            saver.save(way, number)
            say(f"done {way} {number}")


def kill_one(base, before, way, took_s, share):
    """Fork a process that works, and kill it when it has begun to save that way; return what it has said.

    That is ``share`` of the time later that such a save takes, which ``took_s`` knows once one has been done.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            work(base, before, lambda text: os.write(theirs, f"{text}\n".encode()))
        except BaseException:  # noqa: BLE001 - the parent fails for it
            traceback.print_exc()
        os._exit(1)
    os.close(theirs)
    said, began_s = [], 0.0
    with os.fdopen(ours) as lines:
        for line in lines:
            now = time.monotonic()
            said.append(tuple(line.split()))
            what, of, _ = said[-1]
            if what == "found":
                continue
            if what == "done":
                took_s[of] = now - began_s
            elif of == way and way in took_s:
                time.sleep(share * took_s[way])
                os.kill(pid, signal.SIGKILL)
                break
            else:
                began_s = now
        said += [tuple(line.split()) for line in lines]  # until it has ended
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"after {before}: see above"
    return said


def main(base, kills):
    import keras  # noqa: F401 - forked processes have it
    import tensorflow as tf  # noqa: F401

    import tfos_lab.gfile

    tfos_lab.gfile.register()
    chance = random.Random(kills)
    before, took_s, middle = {}, {}, collections.Counter()
    for kill in range(kills):
        way = WAYS[kill % len(WAYS)]
        for what, of, number in kill_one(base, before, way, took_s, chance.random()):
            done = before.get(of, (0, 0))[1]
            before[of] = int(number), done if what == "begin" else int(number)
        middle[way] += before[way][0] != before[way][1]
    sys.stdout.write(json.dumps(middle))


def kill_savers(address, kills):
    """Return how many processes were killed in the middle of each way to save; fail if one finds a broken file."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.rigs.killed_savers", address, str(kills)],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1], int(sys.argv[2]))
