#include "framework/convert/launch.h"

#include <gtest/gtest.h>

#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

std::string shown(const std::vector<GivenFlag>& flags) {
  std::string out;
  for (const auto& flag : flags) {
    out += (out.empty() ? "" : " ") + flag.flag;
    for (const auto& value : flag.values) out += "|" + value;
  }
  return out;
}

class Launches : public InOwnFolder {
 protected:
  LaunchReading read(const std::string& script, const ScriptInputs& inputs = {}, const std::string& name = "x.sh") {
    write(name, script);
    report = Report();
    return read_launches(name, inputs, Mappings(), report);
  }
  /// "launcher: options: program: flags" of the only launch.
  std::string one(const std::string& script) {
    const auto reading = read(script);
    if (reading.launches.size() != 1) return std::to_string(reading.launches.size()) + " launches " + told();
    const auto& launch = reading.launches[0];
    return launch.launcher + ": " + shown(launch.options) + ": " + launch.program + ": " + shown(launch.flags);
  }
  std::string told() const {
    std::string out;
    for (const auto& line : report.problems()) out += "problem " + line + "\n";
    for (const auto& line : report.notes()) out += "note " + line + "\n";
    return out;
  }

  Report report;
};

TEST_F(Launches, EveryLauncherIsToldFromWhatItStarts) {
  const std::string program = " pretrain_gpt.py --lr 1", same = ": pretrain_gpt.py: --lr|1";
  EXPECT_EQ(one("torchrun --nproc_per_node 8 --standalone --nnodes=2" + program),
            "torchrun: --nproc_per_node|8 --standalone --nnodes|2" + same);
  EXPECT_EQ(one("python3.10 -u -m torch.distributed.launch --nnodes 1" + program),
            "python -m torch.distributed.launch: --nnodes|1" + same);
  EXPECT_EQ(one("python -m torch.distributed.run --nnodes 1 --" + program),
            "python -m torch.distributed.run: --nnodes|1" + same);
  EXPECT_EQ(one("deepspeed --num_gpus 8 --force_multi -i worker-0:0,1" + program),
            "deepspeed: --num_gpus|8 --force_multi -i|worker-0:0,1" + same);
  EXPECT_EQ(one("msrun --worker_num 8 --join True --bind_core=True" + program),
            "msrun: --worker_num|8 --join|True --bind_core|True" + same);
  EXPECT_EQ(one("ttprun --nproc_per_node 4" + program), "ttprun: --nproc_per_node|4" + same);
  EXPECT_EQ(one("accelerate launch --config_file c.yaml --multi_gpu" + program),
            "accelerate launch: --config_file|c.yaml --multi_gpu" + same);
  EXPECT_EQ(one("/usr/bin/python -u" + program), "python: -u" + same);
}

TEST_F(Launches, WordsBeforeALauncherAreReadAndNamed) {
  const std::string same = ": pretrain_gpt.py: --lr|1", program = " pretrain_gpt.py --lr 1";
  EXPECT_EQ(one("srun -N 2 -l --ntasks=16 python" + program), "srun python: -N|2 -l --ntasks|16" + same);
  EXPECT_EQ(one("mpirun -np 8 --allow-run-as-root -mca btl tcp -x PATH python" + program),
            "mpirun python: -np|8 --allow-run-as-root -mca|btl|tcp -x|PATH" + same);
  EXPECT_EQ(one("stdbuf -oL -eL torchrun" + program + " 2>&1 | tee log"), "stdbuf torchrun: -oL|-eL" + same);
  EXPECT_EQ(one("nohup uv run --no-sync python -m torch.distributed.run" + program + " &"),
            "nohup uv run python -m torch.distributed.run: --no-sync" + same);
  EXPECT_EQ(one("timeout 60 numactl -N 0 -m 0 taskset -c 0-3 env A=1 B=2 time torchrun" + program),
            "timeout numactl taskset env time torchrun: -N|0 -m|0 -c" + same);
  EXPECT_EQ(one("debugpy-run -p :5678 -m torch.distributed.run -- --nnodes 1" + program),
            "debugpy-run torch.distributed.run: -p|:5678 -m --nnodes|1" + same);
  EXPECT_EQ(one("srun -l bash -c 'cd /x && torchrun" + program + "'"), "srun torchrun: -l" + same);
  EXPECT_EQ(one("singularity exec x.sif torchrun --nnodes 1" + program), "singularity torchrun: --nnodes|1" + same);
  EXPECT_EQ(one("$LAUNCH --x 1" + program), "${LAUNCH}: --x|1" + same);
}

TEST_F(Launches, ValuesWithBlanksAndSignsBelongToTheirFlag) {
  EXPECT_EQ(
      one("torchrun --master_addr your master ip --nnodes 1 t/train_x.py --data-path a b 0.5 -1 --x=y=z --lr -1e-4 -c"),
      "torchrun: --master_addr|your|master|ip --nnodes|1: t/train_x.py: --data-path|a|b|0.5|-1 --x|y=z --lr|-1e-4 -c");
  EXPECT_EQ(one("A=(\"--split '90,5,5'\" \"--name 'a b'\")\ntorchrun pretrain.py ${A[@]}"),
            "torchrun: : pretrain.py: --split|90,5,5 --name|a b");
  EXPECT_TRUE(says(told(), "x.sh:1: the quotes of '90,5,5' would reach the program")) << told();
}

TEST_F(Launches, UnknownBundlesAreStrayWordsAndUnknownValuesAreListed) {
  const auto reading =
      read("torchrun --nnodes $N pretrain_gpt.py rest --bf16 $EXTRA_ARGS --lr ${LR} \"$@\" --save $2/x_$(date +%F)\n");
  ASSERT_EQ(reading.launches.size(), 1U);
  EXPECT_EQ(shown(reading.launches[0].flags), "--bf16 --lr|${LR} --save|$2/x_$(date +%F)");
  EXPECT_EQ(reading.launches[0].stray, (std::vector<std::string>{"rest", "${EXTRA_ARGS}", "$@"}));
  std::string unknowns;
  for (const auto& unknown : reading.unknowns) {
    unknowns += unknown.name + ":";
    for (const auto& flag : unknown.used_by) unknowns += " " + flag;
    unknowns += " " + std::to_string(unknown.at.line) + "\n";
  }
  EXPECT_EQ(unknowns, "${LR}: --lr 1\n$2: --save 1\n$(date +%F): --save 1\n${N}: --nnodes 1\n");
}

TEST_F(Launches, FlagsOfOtherBranchesStandElsewhere) {
  const auto reading = read(
      "P=fp16\nif [ $1 = sel ]; then A=--selective; elif [ $1 = off ]; then A='--offload --layers 2'; fi\n"
      "if [ $P = bf16 ]; then B=--bf16; else B=--fp16; fi\ntorchrun pretrain.py $A $B ${V:+--vp $V}\n");
  ASSERT_EQ(reading.launches.size(), 1U);
  EXPECT_EQ(shown(reading.launches[0].flags), "--selective --fp16");
  std::string elsewhere;
  for (const auto& [flag, condition] : reading.launches[0].elsewhere)
    elsewhere += shown({flag}) + " if " + condition + "\n";
  EXPECT_EQ(elsewhere,
            "--offload if [ $1 = sel ], line 2\n--layers|2 if [ $1 = sel ], line 2\n"
            "--bf16 if [ $P = bf16 ], line 3\n--vp|${V} if ${V:+--vp $V}, line 4\n");
}

TEST_F(Launches, ArgumentsAndEnvironmentDecide) {
  const auto reading =
      read("if [ $1 = big ]; then L=40; else L=$D; fi\ntorchrun pretrain.py --l $L", {{{1, "small"}}, {{"D", "2"}}});
  EXPECT_EQ(shown(reading.launches.at(0).flags), "--l|2");
  EXPECT_TRUE(reading.unknowns.empty());
}

TEST_F(Launches, AreReturnedInTheirOrderWithWhatIsExported) {
  const auto reading = read(
      "export A=1\npython tools/preprocess_data.py --x\nfor L in 1 2; do torchrun pretrain_gpt.py --l $L; done\nB=2 "
      "deepspeed train.py\n");
  ASSERT_EQ(reading.launches.size(), 3U);
  EXPECT_EQ(shown(reading.launches[1].flags), "--l|2");
  EXPECT_EQ(reading.launches[2].program, "train.py");
  EXPECT_EQ(reading.launches[2].at.line, 4);
  EXPECT_EQ(reading.launches[2].environment,
            (std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B", "2"}}));
}

TEST_F(Launches, AFlagGivenAgainIsTold) {
  EXPECT_EQ(one("torchrun pretrain.py --lr 1 \\\n --lr 2"), "torchrun: : pretrain.py: --lr|1 --lr|2");
  EXPECT_TRUE(says(told(), "x.sh:2: --lr is given again, after line 1; the last counts")) << told();
}

TEST_F(Launches, FilesThatAreWrittenAreKept) {
  const auto reading =
      read("Z=2\ncat > ds.json <<EOF\n{\"stage\": $Z}\nEOF\ndeepspeed pretrain.py --deepspeed_config ds.json\n");
  EXPECT_EQ(reading.files.at("ds.json"), "{\"stage\": 2}\n");
}

TEST_F(Launches, AScriptThatLaunchesNothingHasOneProblem) {
  read("echo hello\n");
  EXPECT_TRUE(says(told(), "problem x.sh: starts no training; give the script")) << told();
  read("python tools/convert.py --x 1\n");
  EXPECT_TRUE(says(told(), "problem x.sh: starts no training; it starts tools/convert.py")) << told();
  read("torchrun pretrain.py \"--lr 1\n");
  EXPECT_TRUE(says(told(), "problem x.sh:1: the quote \" that begins here is not closed")) << told();
  read("while true; do :; done\ntorchrun pretrain.py\n");
  EXPECT_TRUE(says(told(), "problem x.sh:1: the script goes on and on")) << told();
  read(std::string("\0\1", 2));
  EXPECT_TRUE(says(told(), "x.sh: is binary")) << told();
  read_launches("none.sh", {}, Mappings(), report);
  EXPECT_TRUE(says(told(), "none.sh")) << told();
  EXPECT_EQ(report.problems().size(), 2U);
}

TEST_F(Launches, AScriptThatEndsForWantOfArgumentsIsReadAsIfItHadThem) {
  EXPECT_EQ(one("M=\nif [ -z $M ]; then echo give M; exit 1; fi\ntorchrun pretrain.py --lr 1"),
            "torchrun: : pretrain.py: --lr|1");
  EXPECT_TRUE(says(told(), "read as if this fell otherwise than it looks: [ -z $M ], line 2")) << told();
}

using ModelArgs = Launches;

TEST_F(ModelArgs, BecomeALaunch) {
  const auto reading = read(
      "ENV_VARS:\n  A: 1\nLAUNCHER: ft_launcher\nMODEL_ARGS:\n  --use-mcore: true\n  --off: false\n  --none:\n  --lr: "
      "1e-4\n"
      "  --spec: \"[a.b c]\"\n  --list: [1, 2]\n  --freq: ([0]*3+[1]*5)\n  --words: two words\n  --path: ${DATA}/x\n",
      {}, "model_config.yaml");
  ASSERT_EQ(reading.launches.size(), 1U) << told();
  EXPECT_EQ(reading.launches[0].launcher, "ft_launcher");
  EXPECT_EQ(shown(reading.launches[0].flags),
            "--use-mcore --lr|1e-4 --spec|a.b|c --list|1|2 --freq|([0]*3+[1]*5) --words|two words --path|${DATA}/x");
  EXPECT_EQ(reading.launches[0].flags[1].at.line, 8);
  EXPECT_EQ(reading.launches[0].environment, (std::vector<std::pair<std::string, std::string>>{{"A", "1"}}));
  ASSERT_EQ(reading.unknowns.size(), 1U);
  EXPECT_EQ(reading.unknowns[0].name, "${DATA}");
}

TEST_F(ModelArgs, TheSecondOfTwoEqualKeysCountsAndItIsTold) {
  const auto reading =
      read("BASE: &b\n  --x: 1\n  --y: 2\nMODEL_ARGS:\n  <<: *b\n  --lr: 1\n  --x: 3\n  --lr: 2\n", {}, "m.yaml");
  ASSERT_EQ(reading.launches.size(), 1U) << told();
  EXPECT_EQ(shown(reading.launches[0].flags), "--x|3 --lr|2 --y|2");
  EXPECT_TRUE(says(told(), "m.yaml:8: --lr stands twice, first in line 6; the last counts")) << told();
}

TEST_F(ModelArgs, WhatIsNoneIsRefused) {
  read("model: {a: 1}\n", {}, "m.yaml");
  EXPECT_TRUE(says(told(), "no map MODEL_ARGS with flags is in it")) << told();
  read("MODEL_ARGS:\n\t--x: 1\n", {}, "m.yaml");
  EXPECT_TRUE(says(told(), "problem m.yaml")) << told();
  read("MODEL_ARGS: " + std::string(10000, '['), {}, "m.yaml");
  EXPECT_TRUE(says(told(), "problem m.yaml")) << told();
}

}  // namespace
}  // namespace tessera
