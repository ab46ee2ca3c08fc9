"""Saves a small model and its optimizer state with Megatron core itself, on CPUs, as a checkpoint of --ckpt-format torch_dist, and the same state whole.

save_megatron_dist.py OUT [--tensor 2] [--stages 2] [--virtual 2] [--experts 2] [--data 2] [--optimizer none|plain|distributed] [--form FORM] ...

OUT/iter_0000010 is the checkpoint; OUT/whole.safetensors has every weight (fp32) and all optimizer state under the names of Megatron's modules. The values
follow from the names, so two calls with the same model save the same state. --form is the sharding type of the distributed optimizer's state, or "singleton"
(the weights of gate and up in tensors of their own, and each expert). Needs torch, safetensors and megatron-core.
"""

import argparse
import contextlib
import os
import pathlib
import re
import types
import warnings
import zlib

import numpy
import torch

import load_megatron_dist as loading

warnings.filterwarnings("ignore")

FLATTENED, GATHERED, BUCKETS = "fully_sharded_model_space", "dp_zero_gather_scatter", "fully_sharded_bucket_space"


def arguments(how):
    """What Megatron-LM's command line makes of the same model."""
    return types.SimpleNamespace(
        num_layers=how.layers, hidden_size=how.hidden, ffn_hidden_size=how.hidden * 3 // 2, num_attention_heads=4, num_query_groups=2, group_query_attention=how.grouped,
        kv_channels=how.hidden // 4,
        seq_length=16, max_position_embeddings=16, position_embedding_type="rope", rotary_base=10000, rotary_percent=1.0, rotary_interleaved=False,
        use_rotary_position_embeddings=True, add_position_embedding=True, normalization="RMSNorm" if how.swiglu else "LayerNorm", norm_epsilon=1e-5,
        swiglu=how.swiglu, squared_relu=False, bias_gelu_fusion=True, add_bias_linear=not how.swiglu, add_qkv_bias=False, qk_layernorm=how.qk_layernorm,
        untie_embeddings_and_output_weights=how.untied, attention_dropout=0.0, hidden_dropout=0.0, init_method_std=0.02, padded_vocab_size=2 * how.hidden,
        apply_layernorm_1p=False, apply_residual_connection_post_layernorm=False, multi_latent_attention=False, num_experts=4 if how.moe else None,
        moe_layer_freq=1, moe_ffn_hidden_size=how.hidden * 3 // 4, moe_router_topk=2, moe_grouped_gemm=False, tensor_model_parallel_size=how.tensor,
        pipeline_model_parallel_size=how.stages, virtual_pipeline_model_parallel_size=how.virtual, context_parallel_size=1,
        expert_model_parallel_size=how.experts, expert_tensor_parallel_size=how.expert_tensor or how.tensor, data_parallel_size=how.data,
        world_size=how.tensor * how.stages * how.data, decoder_first_pipeline_num_layers=how.first, decoder_last_pipeline_num_layers=how.last,
        account_for_embedding_in_pipeline_split=how.account, account_for_loss_in_pipeline_split=how.account, pipeline_model_parallel_layout=how.layout,
        bf16=how.bf16, fp16=False, use_distributed_optimizer=how.optimizer == "distributed", overlap_grad_reduce=how.bucket_size is not None,
        overlap_param_gather_with_optimizer_step=False, ddp_bucket_size=how.bucket_size, ddp_num_buckets=None, ckpt_format="torch_dist", use_dist_ckpt=True,
        ckpt_fully_parallel_save=how.form != GATHERED, no_save_optim=how.optimizer == "none", no_save_rng=True, train_iters=20, seed=1234, micro_batch_size=1,
        global_batch_size=how.data, optimizer="adam", lr=0.01, min_lr=0.0, lr_decay_style="constant", lr_decay_iters=20, lr_warmup_iters=0, weight_decay=0.1,
        adam_beta1=0.9, adam_beta2=0.999, adam_eps=1e-8, clip_grad=1.0, consumed_train_samples=10 * how.data, skipped_train_samples=0, consumed_valid_samples=0,
        tokenizer_type="NullTokenizer", vocab_size=2 * how.hidden - 1, make_vocab_size_divisible_by=2 * how.hidden)


def values(name, shape):
    """Multiples of 2^-12, which bf16 does not have, and positive ones for the second moment."""
    source = numpy.random.default_rng(zlib.crc32(name.encode()))
    found = source.integers(1 if "exp_avg_sq" in name else -4095, 4096, shape).astype(numpy.float32) / 4096
    return torch.from_numpy(found)


class Whole(dict):
    """The tensors of the whole model, by name, made when they are first asked for."""

    def __init__(self, shapes):
        super().__init__()
        self.shapes = shapes

    def __missing__(self, name):
        weight = re.sub(r"^optimizer\.exp_avg(_sq)?\.", "", name)
        self[name] = values(name, self.shapes[weight])
        return self[name]


def whole_shape(name, parameter, share):
    ranks = (share.expert_tensor if ".experts." in name else share.tensor)[1]
    shape = list(parameter.shape)
    if ranks > 1 and getattr(parameter, "tensor_model_parallel", False):
        shape[parameter.partition_dim] *= ranks
    return shape


def fill(optimizer, chunks, shares):
    """Gives the optimizer's masters and state their values."""
    for one in loading.each_optimizer(optimizer):
        if hasattr(one, "model_param_group_index_map"):
            names = {id(p): (n, s) for c, s in zip(chunks, shares) for n, p in c.named_parameters()}
            for parameter in one.model_param_group_index_map:
                name, share = names[id(parameter)]
                place = one._get_model_param_range_map(parameter)["param"]
                group, order = one.model_param_group_index_map[parameter]
                main = one.optimizer.param_groups[group]["params"][order]
                cut = lambda slot: share.of(name, parameter, slot).flatten()[place.start:place.end].clone()
                main.data.copy_(cut(None))
                one.optimizer.state[main] = {slot: cut(slot) for slot in ("exp_avg", "exp_avg_sq")}
            for group in one.optimizer.param_groups:
                group["step"] = 10
        else:
            halves = getattr(one, "float16_groups", [])
            masters = {id(a): b for halfs, fulls in zip(halves, getattr(one, "fp32_from_float16_groups", [])) for a, b in zip(halfs, fulls)}
            for chunk, share in zip(chunks, shares):
                for name, parameter in chunk.named_parameters():
                    main = masters.get(id(parameter), parameter)
                    if not any(main is p for group in one.optimizer.param_groups for p in group["params"]):
                        continue
                    main.data.copy_(share.of(name, parameter))
                    one.optimizer.state[main] = {slot: share.of(name, parameter, slot).clone() for slot in ("exp_avg", "exp_avg_sq")}
            for group in one.optimizer.param_groups:
                group["step"] = 10


def build_chunks(args, how, states):
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    half = torch.bfloat16 if args.bf16 else torch.float32
    more = dict(num_layers_in_first_pipeline_stage=how.first, num_layers_in_last_pipeline_stage=how.last, virtual_pipeline_model_parallel_size=how.virtual,
                account_for_embedding_in_pipeline_split=how.account, account_for_loss_in_pipeline_split=how.account)
    if how.layout:
        more["pipeline_model_parallel_layout"] = how.layout
    if args.num_experts:
        more |= dict(num_moe_experts=args.num_experts, moe_router_topk=2, moe_ffn_hidden_size=args.moe_ffn_hidden_size, sequence_parallel=how.tensor > 1,
                     moe_token_dispatcher_type="alltoall")
    config = TransformerConfig(
        num_layers=args.num_layers, hidden_size=how.hidden, ffn_hidden_size=args.ffn_hidden_size, num_attention_heads=4, num_query_groups=2 if how.grouped else None,
        kv_channels=args.kv_channels, gated_linear_unit=args.swiglu, activation_func=torch.nn.functional.silu if args.swiglu else torch.nn.functional.gelu,
        add_bias_linear=args.add_bias_linear,
        normalization=args.normalization, layernorm_epsilon=1e-5, qk_layernorm=args.qk_layernorm, use_cpu_initialization=True, pipeline_dtype=half,
        params_dtype=half, bf16=args.bf16, bias_activation_fusion=False, tensor_model_parallel_size=how.tensor, pipeline_model_parallel_size=how.stages,
        expert_model_parallel_size=how.experts, expert_tensor_parallel_size=args.expert_tensor_parallel_size, **more)
    import inspect
    given = dict(num_experts=args.num_experts, qk_layernorm=args.qk_layernorm, moe_grouped_gemm=False, normalization=args.normalization)
    spec = get_gpt_layer_local_spec(**{k: v for k, v in given.items() if k in inspect.signature(get_gpt_layer_local_spec).parameters})
    chunks = []
    for number in range(how.virtual or 1):
        place = {}
        if how.virtual:
            states.set_virtual_pipeline_model_parallel_rank(number)
            if "vp_stage" in inspect.signature(GPTModel.__init__).parameters:
                place["vp_stage"] = number
        asked = dict(ignore_virtual=False, **place) if place else {}
        chunks.append(GPTModel(config=config, transformer_layer_spec=spec, vocab_size=args.padded_vocab_size, max_sequence_length=16,
                               pre_process=states.is_pipeline_first_stage(**asked), post_process=states.is_pipeline_last_stage(**asked),
                               share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights, position_embedding_type="rope", **place))
        if half != torch.float32:
            chunks[-1] = chunks[-1].to(half)
    return chunks, config


def build_optimizer(how, chunks, config):
    import megatron.core.optimizer
    import megatron.core.optimizer.distrib_optimizer
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    class Adam(torch.optim.Optimizer):
        def __init__(self, params, **options):
            super().__init__(params, {**options, "step": 0})

    distributed = how.optimizer == "distributed"
    megatron.core.optimizer.distrib_optimizer.Adam = megatron.core.optimizer.Adam = Adam
    megatron.core.optimizer.USING_PYTORCH_OPTIMIZER = False
    megatron.core.optimizer.distrib_optimizer.HAVE_APEX_OR_TE = True
    ddp = DistributedDataParallelConfig(use_distributed_optimizer=distributed, grad_reduce_in_fp32=True, overlap_grad_reduce=how.bucket_size is not None,
                                        bucket_size=how.bucket_size)
    wrapped = [DistributedDataParallel(config=config, module=chunk, ddp_config=ddp, disable_bucketing=number > 0) for number, chunk in enumerate(chunks)]
    return get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=0.01, min_lr=0.0, weight_decay=0.1, bf16=how.bf16, params_dtype=config.params_dtype,
                                                  use_distributed_optimizer=distributed), wrapped)


def state_of(how, args, chunks, optimizer):
    import inspect
    metadata = {}
    if how.form == "singleton":
        metadata = {"singleton_local_shards": True}
    elif how.form and how.optimizer == "distributed":
        metadata = {"distrib_optim_sharding_type": how.form, "chained_optim_avoid_prefix": how.form in ("dp_reshardable", "fully_reshardable"),
                    "distrib_optim_fully_reshardable_mem_efficient": False}
    asked = {"metadata": metadata} if metadata else {}
    state = dict(args=args, checkpoint_version=3.0, iteration=10, num_floating_point_operations_so_far=0)
    if metadata:
        state["content_metadata"] = metadata
    for number, chunk in enumerate(chunks):
        state["model%d" % number if how.virtual else "model"] = chunk.sharded_state_dict(**asked)
    if optimizer is not None:
        models = {key: value for key, value in state.items() if key.startswith("model")}
        models = models["model"] if list(models) == ["model"] else models
        if how.form and not ("metadata" in inspect.signature(loading.each_optimizer(optimizer)[0].sharded_state_dict).parameters):
            asked = {"sharding_type": how.form}
        state["optimizer"] = optimizer.sharded_state_dict(models, **asked)
    return state


def save(rank, how, port):
    loading.on_cpus()
    world = how.tensor * how.stages * how.data
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.serialization import get_default_save_sharded_strategy
    from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    with contextlib.suppress(ImportError):
        from megatron.core import fp8_utils
        fp8_utils._quantize_param_shard_impl = lambda *args, **more: None
    args = arguments(how)
    more = {"expert_tensor_parallel_size": how.expert_tensor} if how.expert_tensor else {}
    parallel_state.initialize_model_parallel(how.tensor, how.stages, how.virtual, expert_model_parallel_size=how.experts, **more)
    with contextlib.suppress(Exception):
        model_parallel_cuda_manual_seed(1)
    chunks, config = build_chunks(args, how, parallel_state)
    shares = []
    for chunk in chunks:
        share = loading.Share({}, args, chunk, parallel_state)
        # The number of a chunk's first layer, as its own layers say.
        share.first_layer = chunk.decoder.layers[0].layer_number - 1 if len(chunk.decoder.layers) else 0
        shares.append(share)
    own = {share.name(name): whole_shape(name, parameter, share) for chunk, share in zip(chunks, shares) for name, parameter in chunk.named_parameters()}
    shapes = [None] * world
    torch.distributed.all_gather_object(shapes, own)
    whole = Whole({name: shape for one in shapes for name, shape in one.items()})
    for share, chunk in zip(shares, chunks):
        share.whole = whole
        for name, parameter in chunk.named_parameters():
            parameter.data.copy_(share.of(name, parameter))
    optimizer = None
    if how.optimizer != "none":
        optimizer = build_optimizer(how, chunks, config)
        fill(optimizer, chunks, shares)
    args = argparse.Namespace(**vars(args))
    state = state_of(how, args, chunks, optimizer)
    folder = how.out / "iter_0000010"
    if rank == 0:
        folder.mkdir(parents=True)
    torch.distributed.barrier()
    strategy = get_default_save_sharded_strategy("torch_dist")
    if how.form != GATHERED:
        strategy = FullyParallelSaveStrategyWrapper(strategy, parallel_state.get_data_parallel_group(with_context_parallel=True), False)
    import inspect
    more = {"content_metadata": state.pop("content_metadata")} if "content_metadata" in inspect.signature(dist_checkpointing.save).parameters \
        and "content_metadata" in state else {}
    dist_checkpointing.save(state, str(folder), strategy, validate_access_integrity=True, **more)
    if rank == 0:
        (how.out / "latest_checkpointed_iteration.txt").write_text("10")
        from safetensors.torch import save_file
        for name in whole.shapes:
            for slot in ["", "optimizer.exp_avg.", "optimizer.exp_avg_sq."] if optimizer is not None else [""]:
                whole[slot + name]
        save_file({name: tensor.bfloat16().float() if args.bf16 and optimizer is None else tensor for name, tensor in whole.items()},
                  how.out / "whole.safetensors")
        print(f"saved {len(whole)} tensors in {folder}")
    torch.distributed.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    for name in "tensor", "stages", "experts", "data":
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=32, help="hidden size, of which the other sizes are multiples")
    for name in "virtual", "first", "last", "expert-tensor", "bucket-size":
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--layout", help="pipeline_model_parallel_layout")
    parser.add_argument("--form", help=f"{FLATTENED}, {GATHERED}, {BUCKETS}, dp_reshardable, fully_reshardable, singleton")
    parser.add_argument("--optimizer", choices=["none", "plain", "distributed"], default="none")
    for name in "account", "bf16", "swiglu", "grouped", "untied", "moe", "qk-layernorm":
        parser.add_argument(f"--{name}", action="store_true")
    how = parser.parse_args()
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = how.tensor * how.stages * how.data
    if world == 1:
        save(0, how, port)
    else:
        torch.multiprocessing.spawn(save, (how, port), world)
