#include "framework/cli/instruction_flags.h"

#include <utility>

#include "framework/base/error.h"
#include "framework/instructions/instruction_templates.h"

namespace tessera::cli {
namespace {

std::string comma_separated(const std::vector<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += text(all.empty() ? "" : ", ", word);
  return all;
}

}  // namespace

void InstructionFlags::add_to(Command& command) {
  command
      .add_option("--handler-name", request_.handler_name,
                  "Instructions instead of texts: AlpacaStyleInstructionHandler or SharegptStyleInstructionHandler; "
                  "writes PREFIX_packed_{input_ids,attention_mask,labels}_document as MindSpeed-LLM. For pairs of a "
                  "chosen and a rejected answer: AlpacaStylePairwiseHandler or SharegptStylePairwiseHandler; writes "
                  "PREFIX_packed_{chosen,rejected}_{input_ids,labels}_document. Input: JSON lines, a JSON list, or "
                  "Parquet")
      ->suggest({"AlpacaStyleInstructionHandler", "SharegptStyleInstructionHandler", "AlpacaStylePairwiseHandler",
                 "SharegptStylePairwiseHandler"});
  command
      .add_option("--prompt-type", request_.prompt_type,
                  text("Template of prompts and answers: ", comma_separated(instructions::prompt_template_names()),
                       ", or one of --prompt-type-path"))
      ->suggest(instructions::prompt_template_names());
  command.add_option("--prompt-type-path", request_.prompt_type_path,
                     "Path of a file with templates, as MindSpeed-LLM's configs/finetune/templates.json");
  command.add_option("--map-keys", request_.map_keys,
                     "JSON object that names the data's keys: prompt, query, response, history, system (Alpaca); "
                     "messages, tags, system, tools (ShareGPT); chosen, rejected (pairs); null: none");
  command
      .add_option("--seq-length", seq_length_,
                  "Maximum number of tokens of a row; longer rows are left out. With --pack: the length of a sample")
      ->positive();
  command.add_flag("--pack", request_.pack, "Put several rows into each sample, padded to --seq-length");
  command.add_flag("--neat-pack", request_.neat_pack,
                   "With --pack: number the rows of a sample in the attention mask, and cut rows that are too long");
  command.add_flag("--train-on-prompt", request_.train_on_prompt, "Prompts have labels too");
  command.add_flag("--mask-history", request_.mask_history,
                   "Only the last answer of a conversation has labels; where it is cut, its last turns have priority");
  command
      .add_option(
          "--enable-thinking",
          [this](const std::string& given) {
            if (given == "none")
              request_.enable_thinking.reset();
            else
              request_.enable_thinking = given == "true";
          },
          "Reasoning (thinking) of answers, for templates that have it: true (where it is missing, an empty one is "
          "added and trained on), false (removed), none (kept; an empty one is not trained on) [none]")
      ->one_of({"true", "false", "none"});
  command.add_flag("--overwrite-cache", overwrite_cache_,
                   "Accepted for compatibility; has no effect: there is no cache");
  command.add_option("--cache-dir", cache_dir_, "Accepted for compatibility; has no effect: there is no cache");
  command.add_option("--n-subs", subsets_, "Accepted for compatibility; has no effect: see --workers")->positive();
}

instructions::InstructionWriteRequest InstructionFlags::with(const preprocessing::PreprocessRequest& texts) const {
  const auto refuse = [](const std::string& flag, const std::string& why) {
    throw ConfigError(text(flag, " may not be given with --handler-name: ", why, "; remove one of them"));
  };
  if (texts.json_keys != preprocessing::PreprocessRequest().json_keys)
    refuse("--json-keys", "keys of instructions are in --map-keys");
  if (texts.partitions > 1 || texts.keep_sequential_samples) refuse("--partitions", "it applies to texts only");
  if (texts.split_sentences) refuse("--split-sentences", "it applies to texts only");
  if (texts.resume) refuse("--resume", "an interrupted run of instructions starts again");
  if (texts.format.value_or(files::TextFormat::json_lines) != files::TextFormat::json_lines)
    refuse("--format", "instructions are JSON");
  auto whole = request_;
  whole.inputs = texts.inputs;
  whole.output_prefix = texts.output_prefix;
  whole.append_eod = texts.append_eod;
  whole.skip_bad = texts.skip_bad;
  whole.workers = texts.workers;
  if (seq_length_ > 0) whole.seq_length = seq_length_;
  return whole;
}

void InstructionFlags::check_unused() const {
  const auto& r = request_;
  const std::pair<const char*, bool> flags[] = {{"--prompt-type", !r.prompt_type.empty()},
                                                {"--prompt-type-path", !r.prompt_type_path.empty()},
                                                {"--map-keys", !r.map_keys.empty()},
                                                {"--pack", r.pack},
                                                {"--neat-pack", r.neat_pack},
                                                {"--train-on-prompt", r.train_on_prompt},
                                                {"--mask-history", r.mask_history},
                                                {"--seq-length", seq_length_ > 0},
                                                {"--enable-thinking", r.enable_thinking.has_value()}};
  for (const auto& [flag, given] : flags)
    if (given) throw ConfigError(text(flag, " is for instructions; give --handler-name too, or remove it"));
}

}  // namespace tessera::cli
