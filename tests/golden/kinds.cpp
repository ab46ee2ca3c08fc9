#include "tests/golden/kinds.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "tests/golden/answers.h"
#include "tests/golden/command_lines.h"
#include "tests/golden/data.h"
#include "tests/golden/finetune.h"
#include "tests/golden/images.h"
#include "tests/golden/mm_checkpoints.h"
#include "tests/golden/models.h"
#include "tests/golden/multimodal.h"
#include "tests/golden/nf4_blocks.h"
#include "tests/golden/operators.h"
#include "tests/golden/runs.h"
#include "tests/golden/schedules.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;

bool has_any(const fs::path& folder, const std::vector<const char*>& names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return fs::exists(folder / name); });
}

bool is_model(const fs::path& folder) { return fs::exists(folder / "case.json") && fs::is_directory(folder / "hf"); }

/// The model and the batches that cases of fine-tuning start from. It is no case of its own.
bool is_finetune_base(const fs::path& folder) {
  return fs::is_directory(folder / "hf") && fs::exists(folder / "batch.safetensors") && !is_model(folder);
}

bool is_data(const fs::path& folder) {
  return has_any(folder, {"gpt2_ids.jsonl", "tokenizers.json", "gptdataset.jsonl", "preprocess.json", "masks.json",
                          "samplers.json", "broken_input.json", "unicode_classes.jsonl"});
}

bool is_answers(const fs::path& folder) {
  return fs::exists(folder / "generation.json") && fs::exists(folder / "answers.safetensors");
}

bool is_schedules(const fs::path& folder) {
  return has_any(folder, {"scheduler.jsonl", "resume.jsonl", "microbatches.jsonl", "loss_scale.jsonl"});
}

bool is_record(const fs::path& path) {
  const auto end = path.extension();
  return fs::is_regular_file(path) && (end == ".json" || end == ".jsonl" || end == ".safetensors");
}

/// NAME.json beside NAME.safetensors, and no case.json.
bool is_operators(const fs::path& folder) {
  const auto entries = list_folder(folder);
  return !fs::exists(folder / "case.json") && std::any_of(entries.begin(), entries.end(), [](fs::path entry) {
    return entry.extension() == ".json" && fs::exists(entry.replace_extension(".safetensors"));
  });
}

std::string joined(const std::string& folder, const std::string& name) {
  return name.empty() ? folder : folder + "/" + name;
}

/// Walks the folders and collects what their kinds say.
class Walk {
 public:
  Walk(fs::path root, const std::vector<CaseKind>& kinds, const std::function<void(const CaseResult&)>& tell,
       const std::function<void(const std::string&)>& tell_sum)
      : root_(std::move(root)), kinds_(kinds), tell_(tell), tell_sum_(tell_sum) {}

  void visit(const fs::path& folder) {
    const auto kind =
        std::find_if(kinds_.begin(), kinds_.end(), [&](const auto& one) { return one.recognises(folder); });
    if (kind != kinds_.end()) return judge(*kind, folder);
    const auto entries = list_folder(folder);
    if (std::any_of(entries.begin(), entries.end(), is_record))
      add({name_of(folder), CaseResult::Verdict::not_supported,
           "no kind of case that is built recognises this folder"});
    for (const auto& entry : entries)
      if (fs::is_directory(entry)) visit(entry);
  }

  std::vector<CaseResult> results;

 private:
  void judge(const CaseKind& kind, const fs::path& folder) {
    const auto name = name_of(folder);
    try {
      const auto all = kind.run(folder);
      for (auto result : all) {
        result.name = joined(name, result.name);
        add(std::move(result));
      }
      if (kind.sum_up && tell_sum_)
        for (const auto& line : kind.sum_up(all)) tell_sum_(text(name, ": ", line));
    } catch (const std::exception& error) {
      add({name, CaseResult::Verdict::failed, text(kind.name, ": ", error.what())});
    }
  }

  std::string name_of(const fs::path& folder) const {
    const auto relative = fs::relative(folder, root_).generic_string();
    return relative == "." ? fs::canonical(root_).filename().string() : relative;
  }

  void add(CaseResult result) {
    if (tell_) tell_(result);
    results.push_back(std::move(result));
  }

  fs::path root_;
  const std::vector<CaseKind>& kinds_;
  const std::function<void(const CaseResult&)>& tell_;
  const std::function<void(const std::string&)>& tell_sum_;
};

}  // namespace

std::vector<CaseKind> case_kinds(const Programs& programs) {
  const auto one_run = [programs](const fs::path& folder) { return run_training_case(folder, programs); };
  const auto runs = [programs](const fs::path& folder) { return run_training_cases(folder, programs); };
  return {{"models", is_model, run_model_cases},
          {"answers about images", is_answers, run_answer_cases},
          {"blocks in NF4", is_nf4_blocks, run_nf4_blocks},
          {"checkpoints of mm-convert", is_mm_checkpoints, run_mm_checkpoint_cases},
          {"training run", is_training_run, one_run},
          {"training runs", is_training_folder, runs},
          {"schedules", is_schedules, run_schedule_cases},
          {"command lines", is_command_lines, run_command_line_cases, shares_of_command_lines},
          {"fine-tuning", is_finetune_case, run_finetune_case},
          {"base of fine-tuning", is_finetune_base, [](const fs::path&) { return std::vector<CaseResult>(); }},
          {"operators", is_operators, run_operator_cases},
          {"pixels", is_pixels, run_pixel_cases},
          {"texts with images", is_multimodal_text, run_multimodal_text_cases},
          {"orders of MindSpeed-MM", is_multimodal_order, run_multimodal_order_cases},
          {"data", is_data, run_data_cases}};
}

std::vector<CaseResult> run_cases(const fs::path& root, const std::vector<CaseKind>& kinds,
                                  const std::function<void(const CaseResult&)>& tell,
                                  const std::function<void(const std::string&)>& tell_sum) {
  if (!fs::is_directory(root)) throw ConfigError(text(root.string(), ": no such folder"));
  Walk walk(root, kinds, tell, tell_sum);
  walk.visit(root);
  return std::move(walk.results);
}

std::string line_of(const CaseResult& result) {
  const auto* verdict = result.verdict == CaseResult::Verdict::passed   ? "passed"
                        : result.verdict == CaseResult::Verdict::failed ? "failed"
                                                                        : "not supported";
  return text(verdict, " ", result.name, result.summary.empty() ? "" : ": ", result.summary);
}

std::string summary_of(const std::vector<CaseResult>& results) {
  const auto count = [&](CaseResult::Verdict verdict) {
    return std::count_if(results.begin(), results.end(), [&](const auto& one) { return one.verdict == verdict; });
  };
  return text(count(CaseResult::Verdict::passed), " passed, ", count(CaseResult::Verdict::failed), " failed, ",
              count(CaseResult::Verdict::not_supported), " not supported");
}

}  // namespace tessera::golden
