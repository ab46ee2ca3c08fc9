"""Checkpoints of Megatron-LM of ranks that divide experts: what the program makes of a recorded one, judged by a reader of its own."""

import math
import os
import pathlib

from harness import InOwnFolder, main
from torch_pickle import Storage, TorchFile

# A run of Megatron-LM core_v0.12.1 on two ranks with two of four experts each.
RECORDED = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests/data/megatron/ranks/moe_ep2"
EXPERTS = ".local_experts."


def of_all_ranks(name, first):
    """The name of an expert's weight with its number among all experts of the layer; `first`: that of the rank's first."""
    if EXPERTS not in name:
        return name
    before, after = name.split(EXPERTS)
    number, rest = after.split(".", 1)
    return f"{before}{EXPERTS}{int(number) + first}.{rest}"


def weights_of(file):
    return {name: tensor for name, tensor in file.root["model"].items() if isinstance(tensor, Storage)}


def updated_by(file, of_experts):
    return [(name, tensor) for name, tensor in weights_of(file).items() if (EXPERTS in name) == of_experts]


class MegatronExperts(InOwnFolder):
    def contents(self, file, first):
        """Name -> (weight, first and second moment) of a rank, each optimizer asked for its own weights."""
        optimizers, found = file.root["optimizer"], {}
        self.assertEqual(len(optimizers), 2)
        for optimizer, of_experts in zip(optimizers, (False, True)):
            weights = updated_by(file, of_experts)
            self.assertEqual(sorted(optimizer["state"]), list(range(len(weights))))
            for group in optimizer["param_groups"]:
                self.assertEqual(group["is_expert_parallel"], of_experts)
                own = [(name, tensor) for name, tensor in weights if (len(tensor.shape) > 1) == (group["wd_mult"] == 1)]
                self.assertEqual(len(own), len(group["params"]))
                for (name, tensor), number in zip(own, group["params"]):
                    state = optimizer["state"][number]
                    found[of_all_ranks(name, first)] = tuple(map(file.values, (tensor, state["exp_avg"], state["exp_avg_sq"])))
        return found

    def test_what_a_run_of_megatron_saved_goes_to_every_layout(self):
        recorded = {}
        for rank in (0, 1):
            recorded.update(self.contents(TorchFile(RECORDED / f"iter_0000010/mp_rank_00_00{rank}/model_optim_rng.pt"), 2 * rank))
        self.assertEqual(len(recorded), 29)
        self.tessera("checkpoint", "convert", str(RECORDED), "ours", "--from", "megatron", "--to", "tessera")
        self.export("four", expert_model_parallel_size=4)
        for rank in range(4):
            folder = self.folder / f"four/iter_0000010/mp_rank_00_00{rank}"
            found = self.contents(TorchFile(folder / "model_optim_rng.pt"), rank)
            self.assertEqual(len(found), 13 + 2 * 2)  # of all ranks, and of an expert in each layer
            for name, values in found.items():
                self.assertEqual(values, recorded[name], name)

    def test_the_shared_state_of_experts_is_beside_that_of_the_other_weights(self):
        self.tessera("checkpoint", "convert", str(RECORDED), "ours", "--from", "megatron", "--to", "tessera")
        self.export("shared", "training_config.use_distributed_optimizer=true", expert_model_parallel_size=4, tensor_model_parallel_size=2,
                    sequence_parallel="true", expert_tensor_parallel_size=1)
        folders = sorted(path.name for path in (self.folder / "shared/iter_0000010").glob("mp_rank_*"))
        self.assertEqual(folders, ["mp_rank_00_000", "mp_rank_00_002", "mp_rank_01_001", "mp_rank_01_003"])
        for name in folders:
            folder = self.folder / "shared/iter_0000010" / name
            file, shared = TorchFile(folder / "model_optim_rng.pt"), TorchFile(folder / "distrib_optim.pt")
            self.assertTrue(all("state" not in optimizer["optimizer"] for optimizer in file.root["optimizer"]))
            self.assertEqual([state is None for state in shared.root], [name[-1] in "23", False])
            for of_experts, state in enumerate(shared.root):
                if state is None:
                    continue
                self.assertEqual(list(state), ["buckets_coalesced", 0])
                (types, buffer), = state[0].items()
                self.assertEqual(types, ("float32", "float32"))
                at = 0
                for weight, tensor in reversed(updated_by(file, bool(of_experts))):
                    at = (at + 63) // 64 * 64
                    size = math.prod(tensor.shape)
                    self.assertEqual(shared.values(buffer["param"])[at:at + size], file.values(tensor), weight)
                    at += size
                self.assertEqual((buffer["numel_unpadded"], buffer["exp_avg"].shape, buffer["exp_avg_sq"].shape), (at, (at,), (at,)))

    def export(self, target, *options, **parallel):
        sets = list(options) + [f"parallel_config.{key}={value}" for key, value in parallel.items()]
        self.tessera("checkpoint", "convert", "ours", target, "--from", "tessera", "--to", "megatron",
                     *(word for option in sets for word in ("--set", option)))


if __name__ == "__main__":
    main()
