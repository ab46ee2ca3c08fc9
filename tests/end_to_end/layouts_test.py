"""Cuts of layers over real processes, and Megatron-LM's checkpoints saved by them: the losses of one process."""

import harness
from harness import sets
from in_turn import mpirun, InTurn


def cut(**options):
    """--set words of parallel_config."""
    return in_group("parallel_config", options)


def in_group(group, options):
    return [word for name, value in options.items() for word in ("--set", f"{group}.{name}={value}")]


class DeepRuns(InTurn):
    steps = 3

    def setUp(self):
        super().setUp()
        self.recipe("deep.yaml", num_layers=8, training_iters=self.steps, batch_size=1, dataset_config__global_batch_size=8,
                    training_config__tensorboard="false")

    def run_on(self, ranks, run, *more):
        """The losses of a run."""
        self.train_in_turn(ranks, "deep.yaml", [word for word in (*sets(output_dir=run), *more) if word != "--set"])
        return self.losses(run)


class Layouts(DeepRuns):
    steps = 4

    def losses(self, run="run"):
        """Rounded: sums of many ranks are made in another order."""
        return [round(loss, 4) for loss in super().losses(run)]

    def run_alone(self, ranks, run, *more):
        """As run_on, by a command with processes of its own."""
        words = [harness.program(), "train", "deep.yaml", *sets(output_dir=run), *more]
        self.command(*(mpirun(ranks, self.folder) if ranks > 1 else []), *words)
        return self.losses(run)

    def test_every_way_to_cut_layers_gives_the_losses_of_one_process(self):
        alone = self.run_on(1, "alone")
        self.assertEqual(len(alone), 4)
        for number, (ranks, options) in enumerate([
                (3, dict(pipeline_model_parallel_size=3, decoder_first_pipeline_num_layers=2)),
                (2, dict(pipeline_model_parallel_size=2, pipeline_model_parallel_layout="Et*3|t|(t|)*3tL")),
                (2, dict(pipeline_model_parallel_size=2, account_for_embedding_in_pipeline_split="true",
                         account_for_loss_in_pipeline_split="true", num_virtual_stages_per_pipeline_rank=5,
                         microbatch_group_size_per_vp_stage=3)),
                (3, dict(pipeline_model_parallel_size=3, standalone_embedding_stage="true", num_layer_list="[5,3]")),
                (2, dict(pipeline_model_parallel_size=2, num_layers_per_virtual_pipeline_stage=2,
                         recompute="[[1,0],[2,0]]", select_recompute="[[1,1],[0,1]]")),
                (4, dict(pipeline_model_parallel_size=2, num_layer_list="[5,3]", use_tp_pp_dp_mapping="true", zero_level="z1"))]):
            self.assertEqual(self.run_on(ranks, f"run{number}", *cut(**options)), alone, options)

    def test_without_tsrun_several_ranks_say_that_the_state_is_not_kept(self):
        line = "the state is not kept for a restart (resilience_config.policy), because the run was not started by tsrun"
        for run, ranks, more, times in (("two", 2, [], 1), ("one", 1, [], 0), ("off", 2, ["--set", "resilience_config.policy=off"], 0)):
            self.run_alone(ranks, run, *more)
            self.assertEqual((self.folder / run / "tessera.log").read_text().count(line), times, run)

    def test_layers_that_do_nothing_do_so_in_every_cut(self):
        nothing = cut(noop_layers="[2,7]")
        alone = self.run_on(1, "alone", *nothing)
        self.assertNotEqual(alone, self.run_on(1, "all"))
        self.assertEqual(self.run_on(4, "cut", *nothing, *cut(pipeline_model_parallel_size=4)), alone)

    def test_recomputed_norms_and_activation_functions_change_no_byte(self):
        light = dict(recompute_norm="true", recompute_activation_function="true")
        some = dict(light, recompute_norm_num_layers=1, recompute_activation_function_num_layers=3, enable_recompute_layers_per_pp_rank="true")
        full = dict(recompute_granularity="full", recompute_method="block", recompute_num_layers=1)
        gated = dict(hidden_act="swiglu", normalization="RMSNorm")
        stages = dict(pipeline_model_parallel_size=2, num_layers_per_virtual_pipeline_stage=2)
        two = dict(tensor_model_parallel_size=2)
        for number, (ranks, bf16, model, options, recomputed) in enumerate([
                (1, "true", gated, {}, dict(recompute_granularity="selective", recompute_modules="[layernorm,core_attn]")),
                (1, "true", {}, {}, light),
                (2, "false", {}, two, light),
                (2, "true", gated, dict(two, sequence_parallel="true"), light),
                (2, "false", {}, stages, dict(some, **full)),
                (4, "true", gated, dict(stages, **two), some),
                (2, "false", {}, dict(stages, recompute="[[1,0],[2,0]]"), light)]):
            with self.subTest(number=number):
                plain = [*sets(bf16=bf16), *in_group("model_config", model), *cut(**options)]
                self.run_on(ranks, f"plain{number}", *plain)
                self.run_on(ranks, f"less{number}", *plain, *in_group("model_config", recomputed))
                self.assert_same_run(f"plain{number}", f"less{number}")

    def test_a_run_in_megatrons_format_goes_on_in_any_layout(self):
        alone = self.run_alone(1, "alone")
        torch = ["--set", "training_config.ckpt_format=torch"]
        until = lambda step: ["--set", f"training_config.exit_interval={step}"]
        self.run_alone(4, "moving", *torch, *until(1), *cut(tensor_model_parallel_size=2, pipeline_model_parallel_size=2))
        self.run_alone(2, "moving", *torch, *until(2), *cut(pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=2))
        self.run_alone(4, "moving", *torch, *until(3), *cut(tensor_model_parallel_size=2, zero_level="z1"))
        self.assertEqual(self.run_alone(1, "moving", *torch), alone)
        files = sorted(str(path.relative_to(self.folder / "moving")) for path in (self.folder / "moving").rglob("*.pt"))
        self.assertEqual(files, [*(f"iter_0000001/mp_rank_0{tensor}_00{stage}/model_optim_rng.pt" for tensor in (0, 1) for stage in (0, 1)),
                                 *(f"iter_0000002/mp_rank_00_00{stage}/model_optim_rng.pt" for stage in (0, 1)),
                                 *(f"iter_0000003/mp_rank_0{tensor}/{name}.pt" for tensor in (0, 1) for name in ("distrib_optim", "model_optim_rng")),
                                 "iter_0000004/mp_rank_00/model_optim_rng.pt"])
        self.assertFalse((self.folder / "moving/before_conversion_tmp").exists())

    def test_damage_that_one_rank_finds_while_it_loads_takes_all_to_the_checkpoint_before(self):
        alone = self.run_on(1, "alone")
        every = ["--set", "training_config.save_interval=1"]
        for victim, ranks, options in (("optimizer_00003", 4, dict(tensor_model_parallel_size=2)), ("model_00001", 2, dict(pipeline_model_parallel_size=2)),
                                       ("manifest_00002", 3, dict(pipeline_model_parallel_size=3)), ("optimizer_00001", 1, {})):
            run = f"{victim}_{ranks}"
            self.run_on(4, run, *every, "--set", "training_config.exit_interval=3", *cut(tensor_model_parallel_size=2, zero_level="z1"))
            newest = self.checkpoints(run)[-1]
            file = next(newest.glob(f"{victim}.*"))
            data = bytearray(file.read_bytes())
            data[len(data) * 2 // 3] ^= 4
            file.write_bytes(data)
            self.assertEqual(self.run_on(ranks, run, *every, *cut(**options)), alone, victim)
            self.assertIn(file.name, (newest.parent / f"{newest.name}_damaged/why_damaged.txt").read_text())

    def test_a_checkpoint_goes_on_with_another_padding_of_the_vocabulary(self):
        # 51 tokens in rows that tensor parallel ranks share: 56 on one process, 64 on two.
        self.recipe("deep.yaml", training_iters=4, batch_size=1, dataset_config__global_batch_size=4, vocab_size=None,
                    training_config__tensorboard="false", training_config__save_interval=1, model_config__make_vocab_size_divisible_by=8,
                    dataset_config__tokenizer_type="NullTokenizer", dataset_config__vocab_size=50)
        until = lambda step: ["--set", f"training_config.exit_interval={step}"]
        table, state = "embedding.word_embeddings.weight", "optimizer.exp_avg.embedding.word_embeddings.weight"
        self.run_on(1, "run", *until(1))
        self.run_on(4, "run", *until(2), *cut(tensor_model_parallel_size=4, zero_level="z1"))
        losses = self.run_on(1, "run")
        self.assertEqual(len(losses), 4)
        self.assertLess(max(losses) - min(losses), 0.5)
        shapes = [self.tessera("checkpoint", "inspect", folder, "--tensors") for folder in self.checkpoints()]
        for told, rows in zip(shapes, (56, 64, 56)):
            self.assertIn(f"{table} float32 [{rows}, 32]", told)
            self.assertIn(f"{state} float32 [{rows}, 32]", told)

    def test_a_checkpoint_of_megatron_goes_on_with_another_padding_of_the_vocabulary(self):
        """51 tokens: 128 rows, 256 on two tensor parallel ranks, shrink to 56 and 64; these grow."""
        self.recipe("deep.yaml", num_layers=2, training_iters=2, batch_size=1, dataset_config__global_batch_size=4, vocab_size=None,
                    training_config__tensorboard="false", dataset_config__tokenizer_type="NullTokenizer", dataset_config__vocab_size=50)
        padded = lambda rows, ranks: ["--set", f"model_config.make_vocab_size_divisible_by={rows}", *cut(tensor_model_parallel_size=ranks)]
        tables = r"(optimizer\.exp_avg(_sq)?\.)?embedding\.word_embeddings\.weight"
        convert = lambda *words: self.tessera("checkpoint", "convert", "--from", "megatron", "--to", *words)

        def kept(folder):
            """The rows of the tokens in the table and its moments; what is behind them is padding."""
            convert("tessera", folder, folder + "_kept", *cut(tensor_model_parallel_size=1))
            found = self.tensors(next(self.folder.glob(f"{folder}_kept/iter_*")), tables)
            self.assertEqual(len(found), 3)
            return {name: data[:51 * 32 * 4] for name, data in found.items()}

        rows_of = lambda folder: [self.tessera("checkpoint", "inspect", folder, "--tensors").split(f"{name} float32 [")[1].split(",")[0]
                                  for name in ("\nembedding.word_embeddings.weight", "exp_avg.embedding.word_embeddings.weight")]
        for form in "torch", "torch_dist":
            for ranks in 1, 2:
                for rows, others in (128, 8), (8, 128):
                    start = f"{form}{rows}_{ranks}"
                    self.run_on(ranks, start, *sets(ckpt_format=form, exit_interval=1), *padded(rows, ranks))
                    self.assertEqual(rows_of(start), [str(-(-51 // (rows * ranks)) * rows * ranks)] * 2)
                    for into in {1, 3 - ranks}:
                        expected = [str(-(-51 // (others * into)) * others * into)] * 2
                        with self.subTest(form=form, ranks=ranks, rows=rows, into=into):
                            run = f"{start}_into_{into}"
                            self.run_on(into, run, *sets(load_checkpoint=start), *padded(others, into))
                            self.assertEqual(rows_of(run), expected)
                            self.run_on(into, "weights" + run, *sets(load_checkpoint=start, resume_training="false"), *padded(others, into))
                    convert("tessera", start, start + "_ours", "--set", f"model_config.make_vocab_size_divisible_by={others}",
                            *cut(tensor_model_parallel_size=1))
                    self.assertEqual(rows_of(start + "_ours"), [str(-(-51 // others) * others)] * 2)
                    before = kept(start)
                    ours = self.tensors(next(self.folder.glob(f"{start}_ours/iter_*")), tables)
                    self.assertEqual({name: data[:51 * 32 * 4] for name, data in ours.items()}, before)
                    for other_form in "torch", "torch_dist":
                        theirs = f"{start}_{other_form}"
                        told = convert("megatron", "--ckpt-format", other_form, start, theirs, "--make-vocab-size-divisible-by", others,
                                       "--target-tensor-parallel-size", 2)
                        self.assertIn("embedding.word_embeddings.weight: ", told)
                        self.assertEqual(rows_of(theirs), [str(-(-51 // (2 * others)) * 2 * others)] * 2)
                        self.assertEqual(kept(theirs), before)


if __name__ == "__main__":
    harness.main()
