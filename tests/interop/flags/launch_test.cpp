#include "framework/interop/flags/launch.h"

#include <gtest/gtest.h>

#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

std::string shown(const std::vector<flags::GivenFlag>& flags) {
  std::string out;
  for (const auto& flag : flags) {
    out += (out.empty() ? "" : " ") + flag.flag;
    for (const auto& value : flag.values) out += "|" + value;
  }
  return out;
}

class Launches : public InOwnFolder {
 protected:
  flags::LaunchReading read(const std::string& script, const flags::ScriptInputs& inputs = {},
                            const std::string& name = "x.sh") {
    write(name, script);
    report = options::Report();
    return flags::read_launches(name, inputs, options::Mappings(), report);
  }
  /// "launcher: options: program: flags" of the only launch.
  std::string one(const std::string& script) {
    const auto reading = read(script);
    if (reading.launches.size() != 1) return std::to_string(reading.launches.size()) + " launches " + told();
    const auto& launch = reading.launches.at(0);
    return launch.launcher + ": " + shown(launch.options) + ": " + launch.program + ": " + shown(launch.flags);
  }
  std::string told() const {
    std::string out;
    for (const auto& line : report.problems()) out += "problem " + line + "\n";
    for (const auto& line : report.notes()) out += "note " + line + "\n";
    return out;
  }

  options::Report report;
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
  EXPECT_EQ(shown(reading.launches.at(0).flags), "--bf16 --lr|${LR} --save|$2/x_$(date +%F)");
  EXPECT_EQ(reading.launches.at(0).stray, (std::vector<std::string>{"rest", "${EXTRA_ARGS}", "$@"}));
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
  EXPECT_EQ(shown(reading.launches.at(0).flags), "--selective --fp16");
  std::string elsewhere;
  for (const auto& [flag, condition] : reading.launches.at(0).elsewhere)
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
  EXPECT_EQ(shown(reading.launches.at(1).flags), "--l|2");
  EXPECT_EQ(reading.launches.at(2).program, "train.py");
  EXPECT_EQ(reading.launches.at(2).at.line, 4);
  EXPECT_EQ(reading.launches.at(2).environment,
            (std::vector<std::pair<std::string, std::string>>{{"A", "1"}, {"B", "2"}}));
}

TEST_F(Launches, AFlagGivenAgainIsTold) {
  EXPECT_EQ(one("torchrun pretrain.py --lr 1 \\\n --lr 2"), "torchrun: : pretrain.py: --lr|1 --lr|2");
  EXPECT_TRUE(says(told(), "x.sh:2: --lr is given again, after line 1; the last counts")) << told();
}

TEST_F(Launches, ACommandThatBeginsWithAFlagIsToldWithItsLine) {
  const std::string end = "begins a command here; is a backslash missing at the end of the line before?\n";
  EXPECT_EQ(one("python pretrain_gpt.py --n 2 \\\n  --lr 3\n  --save x\n"), "python: : pretrain_gpt.py: --n|2 --lr|3");
  EXPECT_EQ(told(), "note x.sh:3: --save " + end);
  one("python pretrain_gpt.py --n 2 \\\n\n  --lr 3 \\\n --save x\n");
  EXPECT_EQ(told(), "note x.sh:3: --lr " + end);
  one("python pretrain_gpt.py --n 2 --lr 3; -x y\n");
  EXPECT_EQ(told(), "note x.sh:1: -x " + end);
  one("srun bash -c 'python pretrain_gpt.py --n 2\n --lr 3'\n");
  EXPECT_EQ(told(), "note x.sh:1: --lr " + end);
}

TEST_F(Launches, WhatXargsAppendsBelongsToTheProgram) {
  const std::string told_as = "python: : pretrain_gpt.py: --n|2 --lr|3";
  EXPECT_EQ(one("echo '--lr 3' | xargs python pretrain_gpt.py --n 2"), told_as);
  EXPECT_EQ(one("printf '%s\\n' --lr 3 > a.txt; xargs -r -P 1 -a a.txt python pretrain_gpt.py --n 2"), told_as);
  EXPECT_EQ(one("echo --lr 3 > a.txt; cat a.txt | xargs -n 100 torchrun pretrain_gpt.py --n 2"),
            "torchrun: : pretrain_gpt.py: --n|2 --lr|3");
  EXPECT_EQ(one("echo 3 | xargs -I{} python pretrain_gpt.py --n 2 --lr {}"), told_as);
  EXPECT_EQ(one("echo 3 | xargs -I X bash -c 'python pretrain_gpt.py --n 2 --lr X'"), told_as);
  EXPECT_EQ(read("echo 3 4 | xargs -n1 python pretrain_gpt.py --lr").launches.size(), 2U);
  EXPECT_EQ(told(), "");
}

TEST_F(Launches, WhatXargsAppendsWithoutAKnownInputIsTold) {
  const auto reading = read("\ncat none.txt | xargs -n 100 torchrun pretrain_gpt.py --n 2\n");
  ASSERT_EQ(reading.launches.size(), 1U);
  EXPECT_EQ(reading.launches[0].launcher, "torchrun");
  EXPECT_EQ(shown(reading.launches[0].options) + shown(reading.launches[0].flags), "--n|2");
  EXPECT_EQ(reading.launches[0].stray, (std::vector<std::string>{"$(xargs)"}));
  EXPECT_EQ(told(), "note x.sh:2: what xargs appends to this command is not known\n");
  read("\necho 3 | xargs --size 4 python pretrain_gpt.py --n\n");
  EXPECT_TRUE(says(told(), "note x.sh:2: these options of xargs are not read")) << told();
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
  EXPECT_TRUE(says(told(), "problem x.sh:1: the script takes too many steps")) << told();
  read(std::string("\0\1", 2));
  EXPECT_TRUE(says(told(), "x.sh: is binary")) << told();
  flags::read_launches("none.sh", {}, options::Mappings(), report);
  EXPECT_TRUE(says(told(), "none.sh")) << told();
  EXPECT_EQ(report.problems().size(), 2U);
}

TEST_F(Launches, AScriptThatEndsForWantOfArgumentsIsReadAsIfItHadThem) {
  EXPECT_EQ(one("M=\nif [ -z $M ]; then echo give M; exit 1; fi\ntorchrun pretrain.py --lr 1"),
            "torchrun: : pretrain.py: --lr|1");
  EXPECT_TRUE(says(told(), "a condition of the script could not be decided; read as if: [ -z $M ], line 2")) << told();
}

/// "condition (line): flags < needs: remedy", a line for each condition that is not decided.
std::string undecided(const flags::LaunchReading& reading) {
  const auto joined = [](const std::vector<std::string>& words) {
    std::string all;
    for (const auto& word : words) all += (all.empty() ? "" : " ") + word;
    return all;
  };
  std::string out;
  for (const auto& one : reading.undecided)
    out += one.condition + " (" + std::to_string(one.at.line) + "): " + joined(one.flags) +
           joined(one.launcher_options) + (one.program ? " program" : "") + " < " + joined(one.needs) + ": " +
           flags::remedy_for(one) + "\n";
  return out;
}

TEST_F(Launches, AConditionThatDecidesAFlagIsUndecidedUntilItsUnknownsAreGiven) {
  const std::string script =
      "SIZE=$2\nPR=${6}\nif [ $SIZE = 0.5B ]; then L=24; H=896\nelif [ $SIZE = 7B ]; then L=28; H=3584; fi\n"
      "if [ $PR = fp16 ]; then P=--fp16; elif [ $PR = bf16 ]; then P=--bf16; fi\n"
      "torchrun pretrain.py --layers $L --hidden $H $P --lr 1\n";
  const auto reading = read(script);
  EXPECT_EQ(
      undecided(reading),
      "[ $SIZE = 0.5B ] (3): --hidden --layers < $2: give --arg 2=VALUE; --arg 2= if the script is called without "
      "it\n[ $PR = fp16 ] (5): --fp16 --bf16 < $6: give --arg 6=VALUE; --arg 6= if the script is called without "
      "it\n");
  ASSERT_EQ(reading.undecided.size(), 2u);
  // On the third way $H and $L are empty: what the script assigns elsewhere is not the environment's.
  EXPECT_EQ(shown(reading.undecided[0].otherwise), "--hidden|3584 --layers|28 --hidden --layers");
  EXPECT_EQ(
      undecided(read(script, {{{2, "7B"}}, {}})),
      "[ $PR = fp16 ] (5): --fp16 --bf16 < $6: give --arg 6=VALUE; --arg 6= if the script is called without it\n");
  const auto answered = read(script, {{{2, "7B"}, {6, "bf16"}}, {}});
  EXPECT_EQ(undecided(answered), "");
  EXPECT_EQ(shown(answered.launches.at(0).flags), "--layers|28 --hidden|3584 --bf16 --lr|1");
}

TEST_F(Launches, EveryKindOfConditionCanBeUndecided) {
  const std::string end = "\ntorchrun pretrain.py --lr 1 $F\n";
  const std::vector<std::string> conditions = {"[ $1 = a ] && F=--x",
                                               "[ $1 = a ] || F=--x",
                                               "[[ $1 == a* ]] && F=--x",
                                               "[[ $1 =~ a+ ]] && F=--x",
                                               "(( $1 > 2 )) && F=--x",
                                               "test -n \"$1\" && F=--x",
                                               "if [ -z \"$1\" ]; then F=--x; fi",
                                               "if [ $# -gt 1 ]; then F=--x; fi",
                                               "case $1 in a) F=--x ;; *) F=--y ;; esac",
                                               "for a in \"$@\"; do F=--x; done",
                                               "for a in $1; do F=--x; done",
                                               "for ((i = 0; i < $1; i++)); do F=--x; done",
                                               "while [ $# -gt 0 ]; do F=--x; shift; done",
                                               "until [ \"$1\" = end ]; do F=--x; shift; done",
                                               "F=${1:+--x}",
                                               "F=$([ $1 = a ] && echo --x)",
                                               "f() { if [ $1 = a ]; then F=--x; fi; }; f $1",
                                               "A=$1; B=$((A * 2)); [ $B -gt 2 ] && F=--x",
                                               "A=$(basename $1); [ $A = a ] && F=--x",
                                               "A=$1; [ ${A%.sh} = a ] && F=--x",
                                               "A=$1; [ ${#A} -gt 3 ] && F=--x",
                                               "A=$(echo $1 | tr a b); [ $A = b ] && F=--x"};
  for (const auto& condition : conditions) {
    const auto reading = read(condition + end);
    ASSERT_EQ(reading.undecided.size(), 1u) << condition << "\n" << undecided(reading);
    EXPECT_TRUE(reading.undecided[0].decides_run()) << condition;
    EXPECT_NE(flags::remedy_for(reading.undecided[0]).find("--arg 1="), std::string::npos)
        << condition << ": " << undecided(reading);
    EXPECT_EQ(undecided(read(condition + end, {{{1, "3"}, {2, "end"}}, {}})), "") << condition;
  }
}

TEST_F(Launches, AVariableThatNobodyGivesDecidesNothingByItsValue) {
  const std::string script = "if [ \"$SIZE\" = 7B ]; then L=28; else L=24; fi\ntorchrun pretrain.py --layers $L\n";
  EXPECT_EQ(undecided(read(script)), "[ \"$SIZE\" = 7B ] (1): --layers < ${SIZE}: give --env SIZE=VALUE\n");
  EXPECT_EQ(undecided(read(script, {{}, {{"SIZE", "7B"}}})), "");
  EXPECT_EQ(undecided(read("if nvidia-smi -L; then F=--x; fi\ntorchrun pretrain.py --lr 1 $F\n")),
            "nvidia-smi -L (1): --x < nvidia-smi -L: in a copy of the script write true or false in its place\n");
  EXPECT_EQ(undecided(read("if [ -f none/x ]; then F=--x; fi\ntorchrun pretrain.py --lr 1 $F\n")),
            "[ -f none/x ] (1): --x < -f none/x: in a copy of the script write true or false in its place\n");
}

TEST_F(Launches, AGivenVariableThatNoFileOfTheScriptNamesIsTold) {
  const std::string script = "source sizes.sh\ntorchrun --nproc_per_node $GPUS pretrain.py --load ~/c\n";
  write("sizes.sh", "LAYERS=${NUM_LAYERS:-2}\n");
  const auto given = [&](const std::string& name) {
    read(script, {{}, {{"GPUS", "8"}, {name, "4"}}});
    return told();
  };
  EXPECT_TRUE(says(given("NUM_LAYER"), "--env NUM_LAYER: the script does not name this variable")) << told();
  EXPECT_TRUE(says(told(), "did you mean 'NUM_LAYERS'?")) << told();
  for (const char* named : {"NUM_LAYERS", "GPUS", "HOME"}) EXPECT_FALSE(says(given(named), "does not name")) << told();
}

TEST_F(Launches, AScriptsAnswerForAVariableThatIsNotSetIsTakenAndTold) {
  const auto reading = read(
      "GPUS=${GPUS:-8}\nif [ -z \"$LR\" ]; then RATE=1; fi\n[ \"$W\" = \"\" ] && W=2\n"
      "torchrun --nproc_per_node $GPUS pretrain.py --lr $RATE --w $W ${X:+--x $X}\n");
  EXPECT_EQ(undecided(reading), "");
  EXPECT_EQ(shown(reading.launches.at(0).flags), "--lr|1 --w|2");
  EXPECT_TRUE(
      says(told(),
           "x.sh: these environment variables are not known; read as if GPUS is 8 (line 1), LR is not set (line 2), "))
      << told();
  EXPECT_TRUE(says(told(), "X is not set (line 4); --env NAME=VALUE gives a value")) << told();
  EXPECT_EQ(undecided(read("F=${1:-8}\ntorchrun pretrain.py --lr $F\n", {{{1, ""}}, {}})), "");
  EXPECT_EQ(shown(read("F=${1:-8}\ntorchrun pretrain.py --lr $F $2\n", {{{1, ""}}, {}}).launches.at(0).flags),
            "--lr|8");
  EXPECT_EQ(
      undecided(read("F=1; while [ $# -gt 0 ]; do F=2; shift; done\ntorchrun pretrain.py --lr $F\n", {{{1, ""}}, {}})),
      "");
}

TEST_F(Launches, AConditionThatDecidesNothingOfTheLaunchDoesNotMatter) {
  const std::string end = "\ntorchrun pretrain.py --lr 1\n";
  for (const std::string condition :
       {"if [ \"$#\" -lt 1 ]; then echo usage; exit 1; fi", "[ -d logs ] || mkdir logs",
        "if [ $RANK = 0 ]; then echo first; fi", "case $1 in -h) echo usage; exit 0 ;; esac",
        "[ $1 = a ] && LOG=a || LOG=b", "for h in $(cat hosts); do ssh $h ls; done", "mkdir -p out || exit 1",
        "if ! command -v git; then echo none; fi", "if [ -n \"$DEBUG\" ]; then set -x; fi",
        "while read line; do echo $line; done < list", "usage() { exit 1; }\n[ -z $1 ] && usage"}) {
    const auto reading = read(condition + end);
    EXPECT_EQ(undecided(reading), "") << condition;
    EXPECT_EQ(shown(reading.launches.at(0).flags), "--lr|1") << condition;
  }
}

TEST_F(Launches, LauncherOptionsThatAConditionDecidesAreLeftOutAndTold) {
  const auto reading = read(
      "if [ $1 = dsw ]; then N=1; else N=$NNODES; fi\ntorchrun --nnodes $N --nproc_per_node 8 pretrain.py --lr 1\n");
  EXPECT_EQ(shown(reading.launches.at(0).options), "--nproc_per_node|8");
  ASSERT_EQ(reading.undecided.size(), 1u);
  EXPECT_FALSE(reading.undecided[0].decides_run());
  EXPECT_TRUE(says(told(), "note x.sh:1: '[ $1 = dsw ]' decides --nnodes, but $1 is not known; give --arg 1=VALUE"))
      << told();
}

TEST_F(Launches, TheDefaultOfAnArgumentStandsWithANote) {
  const std::string script = "N=${1:-small}\ntorchrun pretrain.py --lr 1 --save runs/$N/${2:-a}\n";
  const auto reading = read(script);
  EXPECT_EQ(undecided(reading), "");
  EXPECT_EQ(shown(reading.launches.at(0).flags), "--lr|1 --save|runs/small/a");
  EXPECT_TRUE(says(told(),
                   "x.sh: the arguments are not known; read as if $1 is small (line 1), $2 is a (line 2); "
                   "--arg N=VALUE gives a value"))
      << told();
  EXPECT_EQ(shown(read(script, {{{1, "large"}, {2, "b"}}, {}}).launches.at(0).flags), "--lr|1 --save|runs/large/b");
}

TEST_F(Launches, AConditionWhoseBranchIsTooLongToFollowIsUndecided) {
  const auto reading = read("if [ $1 = a ]; then :; else while true; do :; done; fi\ntorchrun pretrain.py --lr 1\n");
  ASSERT_EQ(reading.undecided.size(), 1u);
  EXPECT_FALSE(reading.undecided[0].followed);
  EXPECT_TRUE(reading.undecided[0].decides_run());
  EXPECT_EQ(flags::text_of(reading.undecided[0]), "'[ $1 = a ]' may decide flags, but $1 is not known");
}

TEST_F(Launches, WhatIsUndecidedBehindAnUndecidedConditionIsToldToo) {
  EXPECT_EQ(undecided(read("if [ $1 = a ]; then if [ $2 = b ]; then F=--x; fi; else F=--y; fi\n"
                           "if [ $3 = c ]; then exit 1; fi\nP=a; if [ $P = b ]; then [ $4 = d ] && F=--z; fi\n"
                           "torchrun pretrain.py --lr 1 $F\n")),
            "[ $1 = a ] (1): --x --y < $1: give --arg 1=VALUE; --arg 1= if the script is called without it\n"
            "[ $2 = b ] (1): --x < $2: give --arg 2=VALUE; --arg 2= if the script is called without it\n");
  EXPECT_EQ(undecided(read("[ \"$M\" = a ] && torchrun pretrain.py --a 1\n[ \"$M\" = b ] && torchrun pretrain.py --b "
                           "1\n")),
            "[ \"$M\" = a ] && torchrun pretrain.py --a 1 (1): --a --b < ${M}: give --env M=VALUE\n"
            "[ \"$M\" = b ] && torchrun pretrain.py --b 1 (2): --a --b < ${M}: give --env M=VALUE\n");
}

using ModelArgs = Launches;

TEST_F(ModelArgs, BecomeALaunch) {
  const auto reading = read(
      "ENV_VARS:\n  A: 1\nLAUNCHER: ft_launcher\nMODEL_ARGS:\n  --use-mcore: true\n  --off: false\n  --none:\n  --lr: "
      "1e-4\n"
      "  --spec: \"[a.b c]\"\n  --list: [1, 2]\n  --freq: ([0]*3+[1]*5)\n  --words: two words\n  --path: ${DATA}/x\n",
      {}, "model_config.yaml");
  ASSERT_EQ(reading.launches.size(), 1U) << told();
  EXPECT_EQ(reading.launches.at(0).launcher, "ft_launcher");
  EXPECT_EQ(shown(reading.launches.at(0).flags),
            "--use-mcore --lr|1e-4 --spec|a.b|c --list|1|2 --freq|([0]*3+[1]*5) --words|two words --path|${DATA}/x");
  EXPECT_EQ(reading.launches.at(0).flags.at(1).at.line, 8);
  EXPECT_EQ(reading.launches.at(0).environment, (std::vector<std::pair<std::string, std::string>>{{"A", "1"}}));
  ASSERT_EQ(reading.unknowns.size(), 1U);
  EXPECT_EQ(reading.unknowns.at(0).name, "${DATA}");
}

TEST_F(ModelArgs, TheSecondOfTwoEqualKeysCountsAndItIsTold) {
  const auto reading =
      read("BASE: &b\n  --x: 1\n  --y: 2\nMODEL_ARGS:\n  <<: *b\n  --lr: 1\n  --x: 3\n  --lr: 2\n", {}, "m.yaml");
  ASSERT_EQ(reading.launches.size(), 1U) << told();
  EXPECT_EQ(shown(reading.launches.at(0).flags), "--x|3 --lr|2 --y|2");
  EXPECT_TRUE(says(told(), "m.yaml:8: --lr is given twice, first in line 6; the last counts")) << told();
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
