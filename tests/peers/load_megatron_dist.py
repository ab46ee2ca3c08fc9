"""Loads a distributed checkpoint with Megatron core itself, on CPUs, and compares every weight and all optimizer state with a checkpoint of ours.

load_megatron_dist.py FOLDER NATIVE [--tensor 2] [--stages 2] [--experts 2] [--data 2] [--optimizer none|plain|distributed]

FOLDER is an iter_* folder of --ckpt-format torch_dist; NATIVE the same state in our own format. A GPTModel is built from the arguments in common.pt, on
as many processes as the layout has; nothing may be missing in the folder, and nothing in it may be left over (raise_all). Needs torch and megatron-core.
Prints one line, or ends with an error.
"""

import argparse
import json
import math
import os
import pathlib
import re
import sys
import warnings

import numpy

numpy.product = numpy.prod  # NumPy 2 has dropped it; flattened checkpoints of core_v0.12 call it
import torch
import torch._dynamo  # it makes tables of torch's functions, before any is replaced
import torch.utils.cpp_extension

warnings.filterwarnings("ignore")


def on_cpus():
    """What Megatron core asks CUDA for, without one."""
    cpu = torch.device("cpu")
    torch.compile = lambda function=None, **more: function if function is not None else (lambda inner: inner)

    class OnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if str(kwargs.get("device", "cpu")).startswith("cuda") or isinstance(kwargs.get("device"), int):
                kwargs["device"] = cpu
            return function(*args, **kwargs)

    def no_compiler(*args, **more):
        raise ImportError("there is no compiler for CUDA")

    class Nothing:
        def __init__(self, *args, **more):
            pass

    torch.utils.cpp_extension.load_inline = no_compiler
    torch.cuda.Stream = torch.cuda.Event = Nothing
    torch.cuda.current_device = lambda: cpu
    torch.cuda.synchronize = torch.cuda.empty_cache = torch.cuda.set_device = lambda *args: None
    torch.Tensor.cuda = lambda self, *args, **more: self
    plain_type, plain_empty = torch.Tensor.type, torch.empty

    def cuda_type(self, *args, **more):  # the optimizers look for these names
        told = plain_type(self, *args, **more)
        return told.replace("torch.", "torch.cuda.") if isinstance(told, str) and ".cuda." not in told else told

    torch.Tensor.type = cuda_type
    torch.empty = lambda *args, strides=None, **more: plain_empty(*args, **more)  # newer torch gives strides to core_v0.12
    for name in "_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check":
        if hasattr(torch.optim.Optimizer, name):
            setattr(torch.optim.Optimizer, name, lambda self: None)
    OnCpu().__enter__()


def native_tensors(folder):
    """Name -> array of a checkpoint of ours, whole."""
    whole = {}
    for path in sorted(folder.glob("manifest*.json")):
        for name, entry in json.loads(path.read_text()).get("tensors", {}).items():
            kind = {"F32": numpy.float32, "BF16": numpy.uint16, "F16": numpy.float16}[entry["dtype"]]
            array = whole.setdefault(name, numpy.zeros(entry["shape"], kind))
            for box in entry["ranges"]:
                count = math.prod(box["extents"])
                values = numpy.fromfile(folder / box["file"], kind, count, offset=box["byte_offset"]).reshape(box["extents"])
                array[tuple(slice(first, first + extent) for first, extent in zip(box["offsets"], box["extents"]))] = values
    assert whole, f"{folder} has no tensors"
    return {name: torch.from_numpy(array if array.dtype != numpy.uint16 else (array.astype(numpy.uint32) << 16).view(numpy.float32))
            for name, array in whole.items()}


class Share:
    """What a process has of the whole tensors."""

    def __init__(self, whole, args, model, states):
        self.whole, self.args, self.model = whole, args, model
        self.first_layer = states.get_pipeline_model_parallel_rank() * args.num_layers // args.pipeline_model_parallel_size
        self.tensor = states.get_tensor_model_parallel_rank(), args.tensor_model_parallel_size
        self.expert_tensor = states.get_expert_tensor_parallel_rank(), states.get_expert_tensor_parallel_world_size()
        self.first_expert = states.get_expert_model_parallel_rank() * ((args.num_experts or 0) // args.expert_model_parallel_size)
        self.tied_copy = not args.untie_embeddings_and_output_weights

    def name(self, name):
        name = name.removeprefix("module.")
        name = re.sub(r"(decoder\.layers\.)(\d+)", lambda found: f"{found[1]}{int(found[2]) + self.first_layer}", name)
        name = re.sub(r"(local_experts\.)(\d+)", lambda found: f"{found[1]}{int(found[2]) + self.first_expert}", name)
        return "embedding.word_embeddings.weight" if name == "output_layer.weight" and self.tied_copy else name

    def of(self, name, parameter, slot=None):
        name = self.name(name)
        value = self.whole[f"optimizer.{slot}.{name}" if slot else name]
        rank, ranks = self.expert_tensor if ".experts." in name else self.tensor
        if ranks > 1 and getattr(parameter, "tensor_model_parallel", False) or value.shape != parameter.shape:
            dim = parameter.partition_dim
            if self.args.swiglu and "linear_fc1" in name:
                value = torch.cat([half.chunk(ranks, dim)[rank] for half in value.chunk(2, dim)], dim)
            else:
                value = value.chunk(ranks, dim)[rank]
        assert value.shape == parameter.shape, (name, value.shape, parameter.shape)
        return value


def must_equal(found, expected, name):
    assert torch.equal(found.detach().float(), expected), f"{name} differs: {found.flatten()[:4]} and {expected.flatten()[:4]}"


def build_model(args):
    import inspect

    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    import megatron.core.parallel_state as states

    half = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32
    wanted = dict(num_layers=args.num_layers, hidden_size=args.hidden_size, ffn_hidden_size=args.ffn_hidden_size, num_attention_heads=args.num_attention_heads,
                  num_query_groups=args.num_query_groups if args.group_query_attention else None, kv_channels=args.kv_channels, gated_linear_unit=args.swiglu,
                  activation_func=torch.nn.functional.silu if args.swiglu else torch.nn.functional.gelu, add_bias_linear=args.add_bias_linear,
                  add_qkv_bias=getattr(args, "add_qkv_bias", False), normalization=args.normalization, layernorm_epsilon=args.norm_epsilon, qk_layernorm=args.qk_layernorm,
                  use_cpu_initialization=True, pipeline_dtype=half, params_dtype=half, bf16=args.bf16, fp16=args.fp16, bias_activation_fusion=False,
                  tensor_model_parallel_size=args.tensor_model_parallel_size, pipeline_model_parallel_size=args.pipeline_model_parallel_size,
                  expert_model_parallel_size=args.expert_model_parallel_size, expert_tensor_parallel_size=args.expert_tensor_parallel_size)
    if args.num_experts:
        wanted.update(num_moe_experts=args.num_experts, moe_router_topk=args.moe_router_topk, moe_ffn_hidden_size=args.moe_ffn_hidden_size or args.ffn_hidden_size,
                      sequence_parallel=args.tensor_model_parallel_size > 1, moe_token_dispatcher_type="alltoall")
    known = inspect.signature(TransformerConfig).parameters
    config = TransformerConfig(**{key: value for key, value in wanted.items() if key in known})
    spec = get_gpt_layer_local_spec(num_experts=args.num_experts, qk_layernorm=args.qk_layernorm, moe_grouped_gemm=False, normalization=args.normalization) \
        if "normalization" in inspect.signature(get_gpt_layer_local_spec).parameters else \
        get_gpt_layer_local_spec(num_experts=args.num_experts, qk_layernorm=args.qk_layernorm, moe_grouped_gemm=False)
    model = GPTModel(config=config, transformer_layer_spec=spec, vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings,
                     pre_process=states.is_pipeline_first_stage(), post_process=states.is_pipeline_last_stage(),
                     share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights, position_embedding_type=args.position_embedding_type)
    return model.to(half) if half != torch.float32 else model, config


def build_optimizer(args, model, config, distributed, fused):
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    import megatron.core.optimizer
    import megatron.core.optimizer.distrib_optimizer

    class Adam(torch.optim.Optimizer):
        """As Transformer Engine's, its groups have the steps: with torch's, core_v0.12 cannot load flattened state at all."""

        def __init__(self, params, **options):
            super().__init__(params, {**options, "step": 0})

    if fused:
        megatron.core.optimizer.distrib_optimizer.Adam = Adam
        megatron.core.optimizer.Adam, megatron.core.optimizer.USING_PYTORCH_OPTIMIZER = Adam, False
        megatron.core.optimizer.distrib_optimizer.HAVE_APEX_OR_TE = True
    wrapped = DistributedDataParallel(config=config, module=model, ddp_config=DistributedDataParallelConfig(use_distributed_optimizer=distributed,
                                                                                                           grad_reduce_in_fp32=True))
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=0.01, min_lr=0.0, weight_decay=0.1, bf16=args.bf16, fp16=args.fp16,
                                                       params_dtype=config.params_dtype, use_distributed_optimizer=distributed), [wrapped])
    return wrapped, optimizer


def each_optimizer(optimizer):
    return getattr(optimizer, "chained_optimizers", [optimizer])


def compare_plain(optimizer, model, share):
    """Returns how many tensors of state were compared."""
    masters, state, count = {}, {}, 0
    for one in each_optimizer(optimizer):
        if hasattr(one, "fp32_from_float16_groups"):
            for half, full in zip(one.float16_groups, one.fp32_from_float16_groups):
                masters.update({id(a): b for a, b in zip(half, full)})
        state.update({id(parameter): slots for parameter, slots in one.optimizer.state.items()})
    for name, parameter in model.named_parameters():
        master = masters.get(id(parameter), parameter)
        must_equal(master, share.of(name, parameter), name + " (master)")
        for slot in "exp_avg", "exp_avg_sq":
            must_equal(state[id(master)][slot], share.of(name, parameter, slot), f"{slot} {name}")
            count += 1
    return count


def compare_distributed(optimizer, model, share):
    names, count = {id(parameter): name for name, parameter in model.named_parameters()}, 0
    for one in each_optimizer(optimizer):
        for parameter in one.model_param_group_index_map:
            name, place = names[id(parameter)], one._get_model_param_range_map(parameter)["param"]
            kept = one._get_main_param_and_optimizer_states(parameter)
            for slot in kept:
                if slot not in ("param", "exp_avg", "exp_avg_sq"):
                    continue
                expected = share.of(name, parameter, None if slot == "param" else slot).flatten()[place.start:place.end]
                must_equal(kept[slot].flatten(), expected, f"{slot} {name}")
                count += slot != "param"
    return count


def load(rank, folder, native, how, port):
    on_cpus()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(how.world), LOCAL_RANK=str(rank))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=how.world)
    import megatron.core
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.validation import StrictHandling
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    try:
        from megatron.core import fp8_utils
        fp8_utils._quantize_param_shard_impl = lambda *args, **more: None  # core_v0.12 asks Transformer Engine's version there
    except ImportError:
        pass
    common = dist_checkpointing.load_common_state_dict(str(folder))
    args = common["args"]
    # What a command line of Megatron-LM would leave to be derived, as ours does.
    for name, value in {"kv_channels": args.hidden_size // args.num_attention_heads, "num_query_groups": None, "num_experts": None, "moe_ffn_hidden_size": None,
                        "ffn_hidden_size": int(args.hidden_size * 4 * 2 / 3) // 64 * 64 if args.swiglu else 4 * args.hidden_size}.items():
        vars(args).setdefault(name, value)
    args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.expert_model_parallel_size = how.tensor, how.stages, how.experts
    args.expert_tensor_parallel_size = how.expert_tensor or how.tensor
    more = {"expert_tensor_parallel_size": args.expert_tensor_parallel_size} if how.expert_tensor else {}
    parallel_state.initialize_model_parallel(how.tensor, how.stages, expert_model_parallel_size=how.experts, **more)
    import contextlib
    with contextlib.suppress(Exception):
        model_parallel_cuda_manual_seed(1)
    model, config = build_model(args)
    wrapped, optimizer = (None, None) if how.optimizer == "none" else build_optimizer(args, model, config, how.optimizer == "distributed", how.adam == "fused")
    state = {"model": model.sharded_state_dict()}
    if optimizer is not None:
        metadata = dist_checkpointing.load_content_metadata(str(folder)) if hasattr(dist_checkpointing, "load_content_metadata") else None
        more = {"metadata": metadata} if metadata else {}
        state["optimizer"] = optimizer.sharded_state_dict(state["model"], is_loading=True, **more)
    loaded = dist_checkpointing.load(state, str(folder), strict=StrictHandling(how.strict), validate_access_integrity=True)
    model.load_state_dict(loaded["model"], strict=True)
    share = Share(native_tensors(native), args, model, parallel_state)
    half = config.params_dtype
    weights = 0
    for name, parameter in model.named_parameters():
        must_equal(parameter, share.of(name, parameter).to(half).float(), name)
        weights += 1
    slots = 0
    if optimizer is not None:
        optimizer.load_state_dict(loaded["optimizer"])
        slots = (compare_distributed if how.optimizer == "distributed" else compare_plain)(optimizer, model, share)
        groups = [group for one in each_optimizer(optimizer) for group in one.optimizer.param_groups]
        assert groups and all(group["wd_mult"] in (0.0, 1.0) for group in groups), groups
        for one in each_optimizer(optimizer):
            for group in one.optimizer.param_groups:
                for parameter in group["params"]:
                    steps = group["step"] if how.adam == "fused" else one.optimizer.state[parameter]["step"]
                    assert float(steps) == common["iteration"], (steps, group)
    counts = torch.tensor([weights, slots])
    torch.distributed.all_reduce(counts)
    torch.distributed.barrier()
    if rank == 0:
        print(f"megatron-core {megatron.core.__version__}: {how.world} processes, {counts[0]} weights and {counts[1]} tensors of optimizer state are the same")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("native", type=pathlib.Path)
    for name in "tensor", "stages", "experts", "data":
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--expert-tensor", type=int, default=0)
    parser.add_argument("--optimizer", choices=["none", "plain", "distributed"], default="none")
    parser.add_argument("--adam", choices=["fused", "torch"], default="fused")
    parser.add_argument("--strict", default="raise_all", help="raise_unexpected: the folder may have more than is asked for")
    how = parser.parse_args()
    how.world = how.tensor * how.stages * how.data
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if how.world == 1:
        load(0, how.folder, how.native, how, port)
    else:
        torch.multiprocessing.spawn(load, (how.folder, how.native, how, port), how.world)
