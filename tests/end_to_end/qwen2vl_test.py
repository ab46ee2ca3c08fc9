"""The flow of docs/qwen2vl.md on a small model: LLaVA's data, a script of MindSpeed-MM with its JSON files, its own way of reading the log."""

import json
import os
import pathlib
import shutil

from harness import main
from launching import Launching

DATA = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests" / "data"
PICTURES = ["a.png", "b.png", "c.png", "d.png"]


class Qwen2VlFlow(Launching):
    def setUp(self):
        super().setUp()
        images = self.folder / "data" / "COCO2017" / "train2017"
        images.mkdir(parents=True)
        for name in PICTURES:
            shutil.copy(DATA / "multimodal" / "text" / "pictures" / name, images / name)
        turns = lambda first, answer: [{"from": "human", "value": first}, {"from": "gpt", "value": answer}]
        records = [{"id": str(i), "image": PICTURES[i % 4], "conversations": turns(f"<image>\nwhat is it {i}", f"one {i}")}
                   if i % 4 else {"id": str(i), "conversations": turns(f"hello {i}", f"text alone {i}")} for i in range(16)]
        records.append({"id": "x", "image": "nowhere.png", "conversations": turns("<image>", "gone")})
        self.write("data/llava_instruct_150k.json", json.dumps(records))
        shutil.copytree(DATA / "mindspeed_mm" / "settings", self.folder / "settings")
        data = self.settings("data.json")
        data["dataset_param"]["preprocess_parameters"]["model_name_or_path"] = str(DATA / "multimodal" / "tokenizer")
        data["dataset_param"]["basic_parameters"]["dataset"] = "./data/mllm_format_llava_instruct_data.json"
        self.write("settings/data.json", json.dumps(data))
        model = self.settings("model.json")
        model.update(img_context_token_id=432, video_token_id=433, vision_start_token_id=429)
        model["text_decoder"]["vocab_size"] = 440
        self.write("settings/model.json", json.dumps(model))
        script = (DATA / "mindspeed_mm" / "train" / "finetune_qwen2vl.sh").read_text()
        for old, new in (("NPUS_PER_NODE=4", "NPUS_PER_NODE=2"), ("GRAD_ACC_STEP=8", "GRAD_ACC_STEP=2"),
                         ("--train-iters 200", "--train-iters 6"), ("    --load weights/mm \\\n", ""),
                         ("--vocab-size 300", "--vocab-size 440"), ("--num-workers 8", "--num-workers 1")):
            self.assertIn(old, script)
            script = script.replace(old, new)
        self.write("finetune.sh", script)

    def settings(self, name):
        return json.loads((self.folder / "settings" / name).read_text())

    def test_a_script_with_its_files_trains_on_two_stages_and_reads_its_log(self):
        self.assertIn("dropped 1 records", self.tessera("data", "llava-to-mllm"))
        self.tessera("convert", "finetune.sh", "-o", "run.yaml")
        self.assertIn("decoder 1-4, loss", self.tessera("check", "run.yaml", "--ranks", "2"))
        told = self.tsrun("--nproc_per_node", "2", os.environ["TESSERA_PROGRAM"], "train", "run.yaml",
                          "--set", "training_config.profile=false")
        self.write("train.log", told)
        time = self.command("bash", "-c", "grep 'elapsed time per iteration' train.log | awk -F ':' '{print$5}' | awk -F '|' '{print$1}'")
        self.assertEqual(len([float(word) for word in time.split()]), 6)
        tokens = self.command("bash", "-c", "grep 'tokens per sample' train.log | awk -F 'tokens per sample:' '{print$2}' | "
                                            "awk -F '|' '{print$1}'")
        lengths = [float(word) for word in tokens.split()]
        self.assertEqual(lengths, [line["tokens_per_sample"] for line in self.metrics("save_dir")])
        self.assertTrue(all(8 <= length <= 256 and length % 4 == 0 for length in lengths), lengths)  # means of two multiples of 8
        losses = [line["loss"] for line in self.metrics("save_dir")]
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(told.count("272704 of 367040 parameters are trained"), 1)

    def test_a_file_of_settings_that_cannot_be_read_gives_no_recipe(self):
        self.tessera("data", "llava-to-mllm")
        whole = (self.folder / "settings/model.json").read_text()
        for words, complaint in ((whole[:400], "settings/model.json"), ("[1, 2]", "not an object")):
            self.write("settings/model.json", words)
            self.assertIn(complaint, self.tessera("convert", "finetune.sh", "-o", "run.yaml", code=2))
            self.assertFalse((self.folder / "run.yaml").exists())
        (self.folder / "settings/model.json").unlink()
        self.assertIn("there is no file ./settings/model.json", self.tessera("convert", "finetune.sh", "-o", "run.yaml", code=2))

    def test_what_the_script_says_holds_beside_a_folder_of_weights(self):
        """A recipe that loads weights takes what it leaves out from their config.json."""
        script = (self.folder / "finetune.sh").read_text()
        self.write("finetune.sh", script.replace("    --bf16 \\\n", "    --bf16 \\\n    --load weights/hf \\\n", 1))
        model = self.settings("model.json")
        model["text_decoder"]["hidden_dropout"] = 0.1  # our default
        self.write("settings/model.json", json.dumps(model))
        self.tessera("convert", "finetune.sh", "-o", "run.yaml")
        self.assertRegex((self.folder / "run.yaml").read_text(), r"hidden_dropout_rate: 0\.1\b")

    def test_what_a_script_leaves_out_is_that_of_the_weights_it_loads(self):
        script = (self.folder / "finetune.sh").read_text()
        self.write("finetune.sh", script.replace("    --bf16 \\\n", "    --bf16 \\\n    --load weights/hf \\\n", 1))
        model = self.settings("model.json")
        del model["video_token_id"]
        self.write("settings/model.json", json.dumps(model))
        (self.folder / "weights/hf").mkdir(parents=True)
        self.write("weights/hf/config.json", json.dumps({
            "model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "vocab_size": 440, "image_token_id": 7,
            "video_token_id": 431, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}))
        self.tessera("convert", "finetune.sh", "-o", "run.yaml")
        for run in ("finetune.sh", "run.yaml"):
            told = {name: self.tessera("explain", f"vision_config.{name}", run) for name in ("video_token_id", "image_token_id")}
            self.assertIn("431", told["video_token_id"], run)
            self.assertIn("432", told["image_token_id"], run)  # the script says it

    def test_the_recipe_and_the_script_are_the_same_run(self):
        self.tessera("data", "llava-to-mllm")
        self.tessera("convert", "finetune.sh", "-o", "run.yaml")
        changes = ("--set", "parallel_config.pipeline_model_parallel_size=1", "--set", "parallel_config.num_layer_list=null",
                   "--set", "training_config.profile=false")
        self.tessera("train", "run.yaml", *changes, "--set", "training_config.output_dir=a")
        self.tessera("train", "finetune.sh", *changes, "--set", "training_config.output_dir=b")
        self.assert_same_run("a", "b")


if __name__ == "__main__":
    main()
