#include "framework/cli/inference_settings.h"

#include <algorithm>
#include <cmath>

#include "framework/base/json.h"
#include "framework/base/visible_text.h"
#include "framework/files/input_file.h"
#include "framework/options/report.h"

namespace tessera::cli {
namespace {

/// The keys of MindSpeed-MM's file that are read, and those that describe the model or the run there, which the folder
/// of the model and the program know here.
const std::vector<std::string> read_keys = {"pipeline_class", "tokenizer", "prompts", "image_path",
                                            "generation_config"};
const std::vector<std::string> keys_of_model = {"image_processer_path",
                                                "img_context_token_id",
                                                "video_token_id",
                                                "vision_start_token_id",
                                                "image_encoder",
                                                "text_encoder",
                                                "video_encoder",
                                                "text_decoder",
                                                "model_id",
                                                "min_pixels",
                                                "max_pixels",
                                                "device",
                                                "dtype",
                                                "result_output_path",
                                                "parallel_output"};

/// The keys of generation_config that are read, and those that change no answer: tokens of the model, and how answers
/// are computed or returned.
const std::vector<std::string> read_generation_keys = {
    "max_new_tokens",       "temperature", "top_k",     "top_p",
    "repetition_penalty",   "do_sample",   "num_beams", "num_return_sequences",
    "no_repeat_ngram_size", "min_length",  "typical_p", "eos_token_id"};
const std::vector<std::string> harmless_generation_keys = {"bos_token_id",
                                                           "pad_token_id",
                                                           "decoder_start_token_id",
                                                           "image_token_id",
                                                           "video_token_id",
                                                           "vision_start_token_id",
                                                           "transformers_version",
                                                           "_from_model_config",
                                                           "chat_format",
                                                           "max_window_size",
                                                           "attn_implementation",
                                                           "use_cache",
                                                           "kv_cache",
                                                           "cache_config",
                                                           "cache_implementation",
                                                           "low_memory",
                                                           "split_batch",
                                                           "output_attentions",
                                                           "output_hidden_states",
                                                           "output_logits",
                                                           "output_scores",
                                                           "return_dict_in_generate",
                                                           "return_legacy_cache"};

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

/// Reads the values of one file and collects what is wrong with them.
class SettingsReader {
 public:
  explicit SettingsReader(const std::string& file) : file_(file) {
    all_ = parse_json(files::read_input(file, "file of --config"));
    if (!all_.is_object())
      throw ConfigError(text(file, ": is no JSON object; expected an inference JSON of MindSpeed-MM"));
  }

  InferenceSettings read() {
    InferenceSettings out;
    pipeline();
    out.folder = folder();
    out.prompts = texts("prompts");
    out.images = texts("image_path");
    tell_unread(all_, "", read_keys, keys_of_model, out.notes);
    if (const auto* generation = member(all_, "generation_config")) {
      if (generation->is_object())
        read_generation(*generation, out);
      else
        refuse("generation_config", *generation, "an object, {\"max_new_tokens\": 128, ...}");
    }
    if (!wrong_.empty()) throw ConfigError(file_ + ": " + wrong_);
    return out;
  }

 private:
  static const Json* member(const Json& of, const char* key) {
    return of.is_object() && of.contains(key) && !of[key].is_null() ? &of[key] : nullptr;
  }
  void refuse(const std::string& key, const Json& value, const std::string& expected) {
    wrong_ += text(wrong_.empty() ? "" : "; ", key, " is ", shortened(value.dump()), ", expected ", expected);
  }

  /// Notes each key of `object` that is in neither list and has a value.
  void tell_unread(const Json& object, const std::string& group, const std::vector<std::string>& read,
                   const std::vector<std::string>& harmless, std::vector<std::string>& notes) const {
    // Transformers does not look at max_length beside max_new_tokens either.
    const bool has_most = member(object, "max_new_tokens") != nullptr;
    for (const auto& [key, value] : object.items()) {
      if (value.is_null() || (has_most && key == "max_length") || has(read, key) || has(harmless, key)) continue;
      const auto near = options::closest(key, read);
      notes.push_back(text(file_, ": ", group, shortened(visible(key)), " is not read",
                           near.empty() ? "" : text("; did you mean '", near, "'?")));
    }
  }
  void pipeline() {
    const auto* name = member(all_, "pipeline_class");
    if (name != nullptr && (!name->is_string() || name->get<std::string>() != "Qwen2VlPipeline"))
      refuse("pipeline_class", *name, "Qwen2VlPipeline: other models are not supported");
  }
  std::optional<std::string> folder() {
    const auto* tokenizer = member(all_, "tokenizer");
    const auto* name = tokenizer ? member(*tokenizer, "from_pretrained") : nullptr;
    if (name == nullptr) return std::nullopt;
    if (name->is_string()) return name->get<std::string>();
    refuse("tokenizer.from_pretrained", *name, "the folder of a model");
    return std::nullopt;
  }
  /// A text or a list of texts.
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> out;
    const auto* value = member(all_, key);
    if (value == nullptr) return out;
    if (value->is_string()) return {value->get<std::string>()};
    bool right = value->is_array();
    for (std::size_t i = 0; right && i < value->size(); ++i) {
      right = (*value)[i].is_string();
      if (right) out.push_back((*value)[i].get<std::string>());
    }
    if (!right) refuse(key, *value, "a text or a list of texts");
    return out;
  }
  /// A number of generation_config within [least, most]; `otherwise` if it is not given.
  double number(const Json& generation, const char* key, double least, double most, double otherwise) {
    const auto* value = member(generation, key);
    if (value == nullptr) return otherwise;
    const auto given = value->is_number() ? value->get<double>() : NAN;
    if (given >= least && given <= most) return given;
    refuse(text("generation_config.", key), *value, text("a number from ", least, " to ", most));
    return otherwise;
  }
  std::int64_t whole(const Json& generation, const char* key, double least, double most, std::int64_t otherwise) {
    const auto given = number(generation, key, least, most, static_cast<double>(otherwise));
    if (given == std::floor(given)) return static_cast<std::int64_t>(given);
    refuse(text("generation_config.", key), generation[key], "a whole number");
    return otherwise;
  }
  bool samples(const Json& generation) {
    const auto* value = member(generation, "do_sample");
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->boolean();
    refuse("generation_config.do_sample", *value, "true or false, without quotes");
    return false;
  }
  /// A number that only changes something if it has another value.
  void neutral(const Json& generation, const char* key, double value) {
    if (number(generation, key, -1e9, 1e9, value) != value)
      refuse(text("generation_config.", key), generation[key], text(value, ": others are not supported"));
  }
  void read_generation(const Json& generation, InferenceSettings& out) {
    tell_unread(generation, "generation_config.", read_generation_keys, harmless_generation_keys, out.notes);
    out.tokens = whole(generation, "max_new_tokens", 1, 1e6, 256);
    out.sampling.temperature = number(generation, "temperature", 0, 1e6, 1);
    out.sampling.top_k = whole(generation, "top_k", 0, 1e9, 0);
    out.sampling.top_p = number(generation, "top_p", 1e-6, 1, 1);
    out.sampling.repetition_penalty = number(generation, "repetition_penalty", 1e-3, 1e3, 1);
    if (!samples(generation)) out.sampling.temperature = 0;
    for (const auto& [key, value] :
         {std::pair("num_beams", 1.0), std::pair("num_return_sequences", 1.0), std::pair("no_repeat_ngram_size", 0.0),
          std::pair("min_length", 0.0), std::pair("typical_p", 1.0)})
      neutral(generation, key, value);
    read_end(generation, out);
  }
  void read_end(const Json& generation, InferenceSettings& out) {
    const auto* end = member(generation, "eos_token_id");
    if (end == nullptr) return;
    const auto add = [&](const Json& id) {
      const bool right = id.is_number_integer() && id.number() >= 0 && id.number() <= 0x7FFFFFFF;
      if (right) out.end_tokens.push_back(static_cast<std::int32_t>(id.get<std::int64_t>()));
      return right;
    };
    bool right = true;
    if (end->is_array())
      for (std::size_t i = 0; i < end->size(); ++i) right = add((*end)[i]) && right;
    else
      right = add(*end);
    if (!right) refuse("generation_config.eos_token_id", *end, "a token id or a list of them");
  }

  std::string file_;
  Json all_;
  std::string wrong_;
};

}  // namespace

InferenceSettings read_inference_settings(const std::string& file) { return SettingsReader(file).read(); }

}  // namespace tessera::cli
