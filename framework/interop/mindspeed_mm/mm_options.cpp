#include "framework/interop/mindspeed_mm/mm_options.h"

#include <utility>

#include "framework/options/group.h"

namespace tessera::mindspeed_mm {
namespace {

constexpr const char* cfg = "cfg";

/// Reads structs from the group cfg and collects their facts.
class OptionReader {
 public:
  OptionReader(const options::Value& tree, options::Report& report)
      : tree_(tree), report_(report), group_(tree, cfg, report) {}

  template <class T>
  T read(const std::string& map = "") {
    const auto& schema = options::schema_of<T>();
    auto facts = schema.facts(map);
    group_.know({"", "", facts});
    facts_.insert(facts_.end(), facts.begin(), facts.end());
    return schema.read(group_, map);
  }
  /// The path of a folder that must be given.
  void need(const std::string& folder, const std::string& name) {
    if (folder.empty() && !report_.concerns(text(cfg, ".", name)))
      report_.problem({}, text(cfg, ".", name), text(name, " is not given; a folder was expected"),
                      text("give --", cfg, ".", name, " FOLDER"));
  }
  void refuse(const std::string& name, const std::string& message, const std::string& advice) {
    report_mistakes({{name, message, advice}}, tree_, report_);
  }
  MmParallelConfig parallel(const std::string& map) {
    auto out = read<MmParallelConfig>(map);
    const auto refuse_if = [&](bool wrong, const char* name, const std::string& message) {
      if (wrong) refuse(map + "." + name, message, "leave it out");
    };
    refuse_if(out.ep_size != 1, "ep_size", text("ep_size is ", out.ep_size, "; a Qwen2-VL has no experts"));
    refuse_if(out.audio_pp_layers && out.audio_pp_layers->sum() != 0, "audio_pp_layers",
              "audio_pp_layers is given; a Qwen2-VL has no audio tower");
    refuse_if(out.vit_tp_size != 0 && out.vit_tp_size != out.tp_size, "vit_tp_size",
              text("vit_tp_size is ", out.vit_tp_size, " and tp_size ", out.tp_size,
                   "; both towers are divided by the same ranks"));
    refuse_if(out.audio_tp_size != 0, "audio_tp_size", "audio_tp_size is given; a Qwen2-VL has no audio tower");
    const auto names = names_of_layers(map);
    for (const auto& name : names)
      if (report_.concerns(text(cfg, ".", name))) return out;
    if (report_.good()) report_mistakes(mistakes(out.layout(), names), tree_, report_);
    return out;
  }
  MmHfConfig hf(bool needed) {
    auto out = read<MmHfConfig>("hf_config");
    if (needed) need(out.hf_dir, "hf_config.hf_dir");
    return out;
  }
  void refuse_other_text_model() {
    if (!read<MmHfConfig>("llm_hf_config").hf_dir.empty())
      refuse("llm_hf_config.hf_dir", "llm_hf_config is given; a text model of another folder is not supported",
             "give hf_config one folder with the whole model");
  }
  void finish() {
    for (const auto& [name, value] : tree_.fields)
      if (name != cfg) report_.problem(value.origin, name, text("no option '", name, "'; all are in the group ", cfg));
    group_.finish();
  }
  std::vector<options::OptionFacts> facts() { return std::move(facts_); }

 private:
  const options::Value& tree_;
  options::Report& report_;
  options::Group group_;
  std::vector<options::OptionFacts> facts_;
};

void read_command(MmCommand command, OptionReader& reader, MmOptions& out) {
  if (command == MmCommand::resplit) {
    out.resplit = reader.read<ResplitConfig>();
    reader.need(out.resplit.source_dir, "source_dir");
    reader.need(out.resplit.target_dir, "target_dir");
    out.hf = reader.hf(false);
    out.parallel = reader.parallel("source_parallel_config");
    out.target = reader.parallel("target_parallel_config");
    return;
  }
  if (command == MmCommand::hf_to_mm) {
    out.hf_to_mm = reader.read<HfToMmConfig>();
    reader.need(out.hf_to_mm.mm_dir, "mm_dir");
  } else {
    out.mm_to_hf = reader.read<MmToHfConfig>();
    reader.need(out.mm_to_hf.save_hf_dir, "save_hf_dir");
    reader.need(out.mm_to_hf.mm_dir, "mm_dir");
  }
  out.hf = reader.hf(true);
  out.parallel = reader.parallel("parallel_config");
  reader.refuse_other_text_model();
}

constexpr const char* qkv_text =
    "Layout of the rows of the vision tower's query, key and value projections: per_head, or concatenated as in "
    "folders of MindSpeed-MM 2.2.0 and 2.3.0; null: that of --mm-version.";
constexpr const char* code_text = "No effect: Python code of a model folder is never run.";

}  // namespace

void describe(options::Schema<MmParallelConfig>& s) {
  using O = MmParallelConfig;
  s.option("vit_pp_layers", &O::vit_pp_layers,
           "Number of layers of the vision tower on each pipeline stage; with virtual stages [chunk][stage].")
      .at_least(0)
      .at_most(100000);
  s.option("llm_pp_layers", &O::llm_pp_layers,
           "Number of layers of the text model on each pipeline stage; with virtual stages [chunk][stage].")
      .at_least(0)
      .at_most(100000);
  s.option("audio_pp_layers", &O::audio_pp_layers, "Number of layers of an audio tower on each pipeline stage.")
      .at_least(0);
  s.option("tp_size", &O::tp_size, "Tensor-parallel size.").at_least(1).at_most(99);
  s.option("ep_size", &O::ep_size, "Expert-parallel size; only 1.").at_least(1);
  s.option("vit_tp_size", &O::vit_tp_size, "Tensor-parallel size of the vision tower; only 0 or `tp_size`.")
      .at_least(0);
  s.option("audio_tp_size", &O::audio_tp_size, "Tensor-parallel size of an audio tower; only 0.").at_least(0);
}

void describe(options::Schema<MmHfConfig>& s) {
  s.option("hf_dir", &MmHfConfig::hf_dir, "Folder of Hugging Face Transformers with the model.");
}

void describe(options::Schema<HfToMmConfig>& s) {
  using O = HfToMmConfig;
  s.option("mm_dir", &O::mm_dir, "Folder to write, new or empty.");
  s.option("save_vit_only", &O::save_vit_only, "Write the vision tower and the merger only.");
  s.option("trust_remote_code", &O::trust_remote_code, code_text);
  s.option("tower_qkv", &O::tower_qkv, qkv_text);
}

void describe(options::Schema<MmToHfConfig>& s) {
  using O = MmToHfConfig;
  s.option("save_hf_dir", &O::save_hf_dir, "Folder to write, new or empty.");
  s.option("mm_dir", &O::mm_dir, "Checkpoint folder of MindSpeed-MM.");
  s.option("trust_remote_code", &O::trust_remote_code, code_text);
  s.option("tower_qkv", &O::tower_qkv, qkv_text);
}

void describe(options::Schema<ResplitConfig>& s) {
  using O = ResplitConfig;
  s.option("source_dir", &O::source_dir, "Checkpoint folder of MindSpeed-MM to read.");
  s.option("target_dir", &O::target_dir, "Folder to write, new or empty.");
  s.option("tie_word_embeddings", &O::tie_word_embeddings,
           "The output layer is tied to the embedding; null: as config.json of hf_config.hf_dir says, without which it "
           "is if the folder has none, or one of the same bytes on another stage.");
}

MmOptions read_options(MmCommand command, const options::Value& tree, options::Report& report) {
  MmOptions out;
  OptionReader reader(tree, report);
  read_command(command, reader, out);
  reader.finish();
  return out;
}

std::vector<options::OptionFacts> options_of(MmCommand command) {
  options::Value empty;
  empty.kind = options::Value::Kind::group;
  options::Report ignored;
  MmOptions out;
  OptionReader reader(empty, ignored);
  read_command(command, reader, out);
  return reader.facts();
}

std::string template_of(MmCommand command) {
  std::string all = text(cfg, ":\n"), map;
  for (const auto& option : options_of(command)) {
    const auto dot = option.name.find('.');
    const auto of = dot == std::string::npos ? "" : option.name.substr(0, dot);
    if (of != map && !of.empty()) all += text("  ", of, ":\n");
    map = of;
    const auto value = option.required ? std::string() : text(" ", option.default_value);
    const std::string indent = of.empty() ? "  " : "    ";
    all += text(indent, "# ", option.doc, "\n", indent, option.name.substr(dot + 1), ":", value == " " ? " ''" : value,
                "\n");
  }
  return all;
}

std::vector<std::string> names_of_layers(const std::string& map) {
  return {map + ".vit_pp_layers", map + ".llm_pp_layers"};
}

void report_mistakes(const std::vector<options::Finding>& mistakes, const options::Value& tree,
                     options::Report& report) {
  for (auto finding : mistakes) {
    finding.option = text(cfg, ".", finding.option);
    if (const auto* value = tree.at(finding.option)) finding.at = value->origin;
    report.problem(std::move(finding));
  }
}

}  // namespace tessera::mindspeed_mm
