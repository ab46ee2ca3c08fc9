#include <cctype>

#include "framework/parallel/layer_shares.h"

namespace tessera::parallel {
namespace {

constexpr std::size_t most_letters = 100000;  // more than any model; guards memory against a typing error

/// Expands repetitions and parentheses of a layout text.
class LayoutReader {
 public:
  explicit LayoutReader(const std::string& layout) {
    for (const auto c : layout)
      if (c != ',' && !std::isspace(static_cast<unsigned char>(c))) text_ += c;
  }

  std::string read() {
    auto all = items();
    if (at_ < text_.size()) wrong("a ) without its (");
    return all;
  }

 private:
  std::string items() {
    std::string all;
    while (at_ < text_.size() && text_[at_] != ')') {
      all += repeated(item());
      if (all.size() > most_letters) wrong(text("more than ", most_letters, " layers"));
    }
    return all;
  }

  std::string item() {
    const char c = text_[at_++];
    if (c == '(') {
      if (++depth_ > deepest) wrong(text("more than ", deepest, " open ("));
      auto inside = items();
      --depth_;
      if (at_ == text_.size()) wrong("a ( without its )");
      ++at_;
      return inside;
    }
    if (c != 'E' && c != 't' && c != 'm' && c != 'L' && c != '|')
      wrong(text("'", c, "', which is none of E t m L | ( ) *"));
    return std::string(1, c);
  }

  std::string repeated(const std::string& once) {
    if (at_ == text_.size() || text_[at_] != '*') return once;
    std::size_t times = 0, digits = 0;
    for (++at_; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) && digits < 7; ++digits)
      times = times * 10 + static_cast<std::size_t>(text_[at_++] - '0');
    if (digits == 0) wrong("a * without a number after it");
    if (times * once.size() > most_letters) wrong(text("more than ", most_letters, " layers"));
    std::string all;
    for (std::size_t i = 0; i < times; ++i) all += once;
    return all;
  }

  [[noreturn]] static void wrong(const std::string& what) {
    throw ConfigError("pipeline_model_parallel_layout has " + what);
  }

  static constexpr int deepest = 100;
  std::string text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::vector<LayoutPart> read_layout(const std::string& layout) {
  std::vector<LayoutPart> parts(1);
  std::int64_t embeddings = 0, losses = 0;
  for (const auto letter : LayoutReader(layout).read()) {
    auto& part = parts.back();
    if (part.predictions > 0 && letter != 'm' && letter != 'L')
      throw ConfigError(
          text("pipeline_model_parallel_layout has '", letter,
               "' after m: layers of multi-token prediction (m) are computed with the loss, directly before L"));
    if (letter == '|') {
      parts.emplace_back();
    } else if (letter == 't' || letter == 'm') {
      if (part.loss) throw ConfigError("pipeline_model_parallel_layout has a layer after the loss");
      ++(letter == 't' ? part.layers : part.predictions);
    } else if (letter == 'E') {
      if (parts.size() > 1 || part.layers > 0)
        throw ConfigError("pipeline_model_parallel_layout has the embedding elsewhere than at its beginning");
      part.embedding = true, ++embeddings;
    } else {
      part.loss = true, ++losses;
    }
  }
  if (embeddings != 1 || losses != 1 || !parts.back().loss)
    throw ConfigError("pipeline_model_parallel_layout must begin with one E and end with one L");
  return parts;
}

std::vector<options::Finding> mistakes_of_predictions(const ParallelOptions& o, std::int64_t predictions) {
  const std::string option = "pipeline_model_parallel_layout";
  if (!o.pipeline_model_parallel_layout || o.pipeline_model_parallel_layout->empty()) return {};
  std::int64_t placed = 0;
  try {
    placed = read_layout(*o.pipeline_model_parallel_layout).back().predictions;
  } catch (const ConfigError&) {
    return {};  // layer_shares() reports it
  }
  if (placed == predictions) return {};
  return {{"parallel_config." + option,
           text(option, " has ", placed, placed == 1 ? " layer" : " layers",
                " of multi-token prediction (m), but mtp_num_layers is ", predictions),
           predictions > 0 ? text("write ", predictions > 1 ? text("m*", predictions) : "m", " directly before L")
                           : "leave m out, or give model_config.mtp_num_layers",
           "layout"}};
}

}  // namespace tessera::parallel
