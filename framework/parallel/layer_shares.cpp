#include "framework/parallel/layer_shares.h"

#include <numeric>

namespace tessera::parallel {
namespace {

using Counts = std::vector<std::vector<std::int64_t>>;
using Number = std::optional<std::int64_t>;
const std::string layer_shares_group = "parallel_config.";

std::string listed(const Counts& counts) { return text(options::OptionType<Counts>::write(counts)); }

/// Evaluates the options that describe the division of layers; there are three ways: a layout text, a list, or numbers.
class Shares {
 public:
  Shares(const ParallelOptions& options, const Towers& towers, std::vector<options::Finding>& mistakes)
      : o_(options),
        layers_(towers.layers()),
        layers_name_(towers.options()),
        stages_(options.pipeline_model_parallel_size),
        mistakes_(mistakes) {}

  Counts make() {
    if (o_.standalone_embedding_stage) {
      if (stages_ < 2)
        wrong("standalone embedding", "standalone_embedding_stage", "standalone_embedding_stage needs a second stage",
              stages());
      --stages_;
    }
    if (stages_ < 1 || !mistakes_.empty()) return {};
    auto counts = has_layout() ? by_layout() : !o_.num_layer_list.empty() ? by_list() : by_number();
    if (!mistakes_.empty()) return {};
    check_total(counts);
    if (o_.standalone_embedding_stage) counts.insert(counts.begin(), std::vector<std::int64_t>(counts[0].size(), 0));
    if (counts.size() == 1 && counts[0].size() > 1)
      wrong("PAR12", "pipeline_model_parallel_size",
            text("there is one pipeline stage, but it has ", counts[0].size(),
                 " chunks; the interleaved schedule needs two stages"),
            "give at least two stages, or one chunk");
    return counts;
  }

 private:
  void wrong(const char* rule, const std::string& option, const std::string& message, const std::string& suggestion) {
    mistakes_.push_back({layer_shares_group + option, message, suggestion, rule});
  }
  static std::string stages() { return "change pipeline_model_parallel_size"; }

  /// Chunks per stage, from the two names of this option; absent: neither is given.
  Number named_chunks() {
    const auto& ours = o_.virtual_pipeline_model_parallel_size;
    const auto& theirs = o_.num_virtual_stages_per_pipeline_rank;
    if (ours && theirs && *ours != *theirs)
      wrong("PAR6", "num_virtual_stages_per_pipeline_rank",
            text("num_virtual_stages_per_pipeline_rank is ", *theirs, ", but virtual_pipeline_model_parallel_size ",
                 *ours),
            "they are the same: give one of them");
    return ours ? ours : theirs;
  }

  bool has_layout() const { return o_.pipeline_model_parallel_layout && !o_.pipeline_model_parallel_layout->empty(); }
  bool uneven_ends() const { return o_.decoder_first_pipeline_num_layers || o_.decoder_last_pipeline_num_layers; }
  std::int64_t counted_parts() const {
    return std::int64_t{o_.account_for_embedding_in_pipeline_split} + o_.account_for_loss_in_pipeline_split;
  }

  /// `option` describes the division completely: reports any other option that also describes it.
  void must_be_alone(const std::string& option) {
    const std::vector<std::pair<bool, const char*>> others = {
        {o_.decoder_first_pipeline_num_layers.has_value(), "decoder_first_pipeline_num_layers"},
        {o_.decoder_last_pipeline_num_layers.has_value(), "decoder_last_pipeline_num_layers"},
        {o_.account_for_embedding_in_pipeline_split, "account_for_embedding_in_pipeline_split"},
        {o_.account_for_loss_in_pipeline_split, "account_for_loss_in_pipeline_split"},
        {option != "num_layer_list" && !o_.num_layer_list.empty(), "num_layer_list"},
        {option != "num_layer_list" && o_.standalone_embedding_stage, "standalone_embedding_stage"}};
    for (const auto& [given, name] : others)
      if (given)
        wrong("one cut", name, text(name, " and ", option, " both distribute the layers over stages"),
              "keep one of them");
  }

  void must_have_chunks(const std::string& option, std::int64_t chunks) {
    const auto named = named_chunks();
    if (named && *named != chunks)
      wrong("one cut", option,
            text(option, " has ", chunks, chunks == 1 ? " chunk" : " chunks",
                 " on each stage, but virtual_pipeline_model_parallel_size is ", *named),
            text("give ", *named, " on each stage, or leave virtual_pipeline_model_parallel_size out"));
  }

  Counts by_layout() {
    const std::string option = "pipeline_model_parallel_layout";
    must_be_alone(option);
    std::vector<LayoutPart> parts;
    try {
      parts = read_layout(*o_.pipeline_model_parallel_layout);
    } catch (const ConfigError& error) {
      wrong("layout", option, error.what(), "write it as \"Et*3|(tt|)*6L\"");
      return {};
    }
    const auto count = static_cast<std::int64_t>(parts.size());
    if (count % stages_ != 0) {
      wrong("layout", option, text(option, " has ", count, " chunks, which ", stages_, " stages do not divide"),
            "part it by | into a multiple of pipeline_model_parallel_size");
      return {};
    }
    must_have_chunks(option, count / stages_);
    Counts counts(static_cast<std::size_t>(stages_));
    for (std::size_t i = 0; i < parts.size(); ++i)
      counts[i % static_cast<std::size_t>(stages_)].push_back(parts[i].layers);
    return counts;
  }

  Counts by_list() {
    const std::string option = "num_layer_list";
    must_be_alone(option);
    const auto& counts = o_.num_layer_list.stages;
    if (static_cast<std::int64_t>(counts.size()) != stages_)
      wrong("num_layer_list", option,
            text("num_layer_list ", listed(counts), " has ", counts.size(), " stages; expected ", stages_,
                 o_.standalone_embedding_stage ? " after the one with the embedding alone" : ""),
            "its outer list has an item for each stage");
    for (const auto& stage : counts)
      if (stage.size() != counts[0].size() || stage.empty())
        return wrong("num_layer_list", option,
                     text("num_layer_list ", listed(counts), " has stages with different numbers of chunks"),
                     "its inner lists have an item for each chunk"),
               Counts{};
    must_have_chunks(option, static_cast<std::int64_t>(counts[0].size()));
    return counts;
  }

  /// num_layers_per_virtual_pipeline_stage converted to chunks per stage.
  Number chunks_by_length() {
    const auto& length = o_.num_layers_per_virtual_pipeline_stage;
    if (!length) return {};
    const std::string option = "num_layers_per_virtual_pipeline_stage";
    if (uneven_ends()) {
      wrong("PAR6", option, text(option, " and the number of layers of the first or last stage are mutually exclusive"),
            "give virtual_pipeline_model_parallel_size instead");
      return {};
    }
    const auto all = layers_ + counted_parts();
    if (all % stages_ != 0 || all / stages_ % *length != 0) {
      wrong("PAR6", option,
            text(option, " is ", *length, ", but ", all, " layers",
                 counted_parts() ? " (embedding and loss counted)" : "", " over ", stages_,
                 " stages are not divisible by it"),
            "change it, or give num_layer_list");
      return {};
    }
    return all / stages_ / *length;
  }

  Counts by_number() {
    const auto named = named_chunks();
    const auto counted = chunks_by_length();
    if (!mistakes_.empty()) return {};
    if (named && counted && *named != *counted)
      wrong(
          "PAR6", "num_layers_per_virtual_pipeline_stage",
          text("num_layers_per_virtual_pipeline_stage ", *o_.num_layers_per_virtual_pipeline_stage, " makes ", *counted,
               " chunks of each of ", stages_, " stages, but virtual_pipeline_model_parallel_size is ", *named),
          "give one of them");
    const auto chunks = named ? *named : counted.value_or(1);
    if (uneven_ends()) return with_given_ends(chunks);
    if (counted_parts() > 0) return with_counted_parts(chunks);
    if (layers_ < stages_ * chunks) {
      wrong("layers for all", "pipeline_model_parallel_size",
            text(layers_name_, " is ", layers_, ", fewer than ", stages_, " stages",
                 chunks > 1 ? text(" of ", chunks, " chunks") : std::string(), " that each need one"),
            "give fewer stages or more layers");
      return {};
    }
    return shared_out(chunks);
  }

  /// Divides `amount` over `slots`; the remainder goes one each to the last slot but one and then backwards, as in
  /// MindSpeed-Core-MS.
  static std::vector<std::int64_t> shares(std::int64_t amount, std::int64_t slots) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(slots), amount / slots);
    for (std::int64_t i = 0; i < amount % slots; ++i) ++all[static_cast<std::size_t>(slots - 2 - i)];
    return all;
  }

  Counts shared_out(std::int64_t chunks) const {
    Counts counts(static_cast<std::size_t>(stages_));
    for (const auto chunk : shares(layers_, chunks)) {
      const auto row = shares(chunk, stages_);
      for (std::size_t p = 0; p < row.size(); ++p) counts[p].push_back(row[p]);
    }
    return counts;
  }

  // Embedding and loss count as one layer each, so their chunks get one layer less.
  Counts with_counted_parts(std::int64_t chunks) {
    const auto all = layers_ + counted_parts();
    if (all % (stages_ * chunks) != 0) {
      wrong("PAR9", "pipeline_model_parallel_size",
            text(layers_name_, " ", layers_, " and ", counted_parts(),
                 " more for embedding and loss are not divisible by ", stages_, " stages",
                 chunks > 1 ? text(" of ", chunks, " chunks") : std::string()),
            "give a number of layers that does, or num_layer_list");
      return {};
    }
    const auto share = all / stages_ / chunks;
    Counts counts(static_cast<std::size_t>(stages_),
                  std::vector<std::int64_t>(static_cast<std::size_t>(chunks), share));
    if (o_.account_for_embedding_in_pipeline_split) --counts.front().front();
    if (o_.account_for_loss_in_pipeline_split) --counts.back().back();
    if (counts.front().front() < 0)
      wrong("PAR9", "account_for_loss_in_pipeline_split", "there are fewer layers than chunks to hold them",
            "give more layers");
    return counts;
  }

  Counts with_given_ends(std::int64_t chunks) {
    const auto& first = o_.decoder_first_pipeline_num_layers;
    const auto& last = o_.decoder_last_pipeline_num_layers;
    const std::string option = first ? "decoder_first_pipeline_num_layers" : "decoder_last_pipeline_num_layers";
    if (counted_parts() > 0)
      wrong(
          "PAR8", option,
          text(
              option,
              " cannot be combined with account_for_embedding_in_pipeline_split or account_for_loss_in_pipeline_split"),
          "keep one of them");
    const auto given = std::int64_t{first.has_value()} + last.has_value();
    const auto middle = layers_ - first.value_or(0) - last.value_or(0), others = stages_ - given;
    if (others < 0 || (others == 0 ? middle != 0 : middle < others || middle % others != 0)) {
      wrong("PAR8", option,
            text(layers_name_, " ", layers_, " with ", first ? text(*first, " on the first") : std::string(),
                 first && last ? " and " : "", last ? text(*last, " on the last") : std::string(), " stage leaves ",
                 middle, " for ", std::max<std::int64_t>(others, 0), " others, which do not divide them"),
            "change one of these, or give num_layer_list");
      return {};
    }
    std::vector<std::int64_t> rows(static_cast<std::size_t>(stages_), others > 0 ? middle / others : 0);
    if (first) rows.front() = *first;
    if (last) rows.back() = *last;
    Counts counts;
    for (const auto row : rows) {
      if (row % chunks != 0)
        return wrong("PAR8", option,
                     text("a stage of ", row, " layers cannot be divided into ", chunks, " equal chunks"),
                     "give multiples of the number of chunks"),
               Counts{};
      counts.emplace_back(static_cast<std::size_t>(chunks), row / chunks);
    }
    return counts;
  }

  void check_total(const Counts& counts) {
    std::int64_t sum = 0;
    for (const auto& stage : counts) sum = std::accumulate(stage.begin(), stage.end(), sum);
    if (sum == layers_) return;
    const bool list = !has_layout();
    wrong(list ? "num_layer_list" : "layout", list ? "num_layer_list" : "pipeline_model_parallel_layout",
          text(list ? "num_layer_list " + listed(counts) : std::string("pipeline_model_parallel_layout"),
               " adds up to ", sum, " layers; ", layers_name_, " is ", layers_),
          text("make it add up to ", layers_));
  }

  const ParallelOptions& o_;
  const std::int64_t layers_;
  const std::string layers_name_;
  std::int64_t stages_;
  std::vector<options::Finding>& mistakes_;
};

}  // namespace

Counts layer_shares(const ParallelOptions& options, const Towers& towers, std::vector<options::Finding>& mistakes) {
  return Shares(options, towers, mistakes).make();
}

}  // namespace tessera::parallel
