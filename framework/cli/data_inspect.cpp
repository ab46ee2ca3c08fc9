#include <algorithm>
#include <charconv>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "framework/base/number_text.h"
#include "framework/cli/data_commands.h"
#include "framework/cli/data_flags.h"
#include "framework/cli/meter.h"
#include "framework/indexed/dataset_summary.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t bar_columns = 40;

/// The beginning of a document.
struct Shown {
  std::int64_t document = 0, tokens = 0;
  std::vector<std::int32_t> ids;
  std::string words;  ///< empty without a tokenizer
};

struct Inspect {
  std::string prefix;
  std::vector<std::string> documents;
  std::int64_t first_tokens = 16;
  bool verify = false, as_json = false;
  TokenizerFlags tokenizer;

  void run(const CommandContext& context) const {
    const indexed::IndexedDataset data(prefix, !verify);  // mapped pages of all tokens would count as memory
    const auto words = tokenizer.empty() ? nullptr : tokenizer.make(context.registries.tokenizers);
    const auto summary = indexed::summarize(data);
    std::vector<Shown> shown;
    for (const auto document : asked_documents(data)) shown.push_back(show(data, document, words.get()));
    std::optional<indexed::TokenCheck> check;
    if (verify) {
      Meter meter("verify:");
      check = indexed::check_tokens(data, words ? std::optional(words->vocab_size()) : std::nullopt,
                                    [&](std::int64_t done, std::int64_t all) { meter(done, all); });
    }
    as_json ? print_json(data, summary, shown, check) : print(data, summary, shown, check);
    if (check && check->outside > 0)
      throw ConfigError(text(prefix, ": ", check->outside, " of ", check->tokens, " tokens are outside ",
                             words ? text("the vocabulary of ", words->vocab_size()) : std::string("0 to 2^31 - 1"),
                             "; the first: ", check->first_outside,
                             "; preprocess the data with the model's tokenizer"));
  }

 private:
  std::vector<std::int64_t> asked_documents(const indexed::IndexedDataset& data) const {
    std::vector<std::int64_t> out;
    if (documents.empty() && data.documents() > 0) out.push_back(0);
    for (const auto& word : documents) {
      std::int64_t number = -1;
      const auto end = std::from_chars(word.data(), word.data() + word.size(), number);
      if (end.ec != std::errc() || end.ptr != word.data() + word.size() || number < 0 || number >= data.documents())
        throw ConfigError(data.documents() == 0 ? text("--document ", word, ": ", prefix, " has no documents")
                                                : text("--document ", word, ": ", prefix, " has the documents 0 to ",
                                                       data.documents() - 1));
      out.push_back(number);
    }
    return out;
  }

  Shown show(const indexed::IndexedDataset& data, std::int64_t document, const tokenizers::Tokenizer* words) const {
    Shown out{document, 0, {}, ""};
    for (auto s = data.first_sequence(document); s < data.first_sequence(document + 1); ++s) {
      const auto before = out.ids.size();
      const auto count = std::min(data.length(s), first_tokens - static_cast<std::int64_t>(before));
      out.tokens += data.length(s);
      out.ids.resize(before + static_cast<std::size_t>(count));
      data.read(s, 0, std::span(out.ids).subspan(before));
    }
    if (words != nullptr) out.words = words->decode(out.ids);
    return out;
  }

  static void print(const indexed::IndexedDataset& data, const indexed::DatasetSummary& summary,
                    const std::vector<Shown>& shown, const std::optional<indexed::TokenCheck>& check) {
    const auto line = [](const char* name, const auto&... value) {
      std::cout << std::left << std::setw(12) << name << text(value...) << "\n";
    };
    line("documents", summary.documents);
    line("empty", summary.empty_documents);
    line("sequences", data.sequences(), data.has_modes() ? ", with modes" : "");
    line("tokens", data.tokens());
    line("type", indexed::name_of(data.type()));
    line("longest", summary.longest_document, " tokens");
    line("shortest", summary.shortest_document, " tokens");
    print_histogram(summary, data.sequences());
    for (const auto& one : shown) {
      std::cout << "document " << one.document
                << (static_cast<std::int64_t>(one.ids.size()) < one.tokens ? " begins" : " is");
      for (const auto id : one.ids) std::cout << " " << id;
      std::cout << (one.tokens == 0 ? " empty\n" : "\n");
      if (!one.words.empty()) std::cout << one.words << "\n";
    }
    if (!check) return;
    std::cout << "verified    " << check->tokens << " tokens read, ids " << check->least << " to " << check->greatest
              << "\n";
    if (check->unused_bytes > 0)
      std::cout << "note: " << check->unused_bytes << " bytes of the .bin file belong to no sequence\n";
    if (check->out_of_order > 0)
      std::cout << "note: " << check->out_of_order << " sequences do not begin where the one before ends\n";
  }

  static void print_histogram(const indexed::DatasetSummary& summary, std::int64_t sequences) {
    if (summary.histogram.empty()) return;
    std::cout << "lengths of sequences, in tokens: mean " << short_number(summary.mean_sequence) << ", "
              << summary.shortest_sequence << " to " << summary.longest_sequence << "\n";
    std::int64_t most = 1;
    std::size_t widest = 0, digits = 0;
    const auto name = [](const indexed::DatasetSummary::Bucket& bucket) {
      return bucket.from == bucket.to ? text(bucket.from) : text(bucket.from, "-", bucket.to);
    };
    for (const auto& bucket : summary.histogram) {
      most = std::max(most, bucket.sequences);
      widest = std::max(widest, name(bucket).size());
      digits = std::max(digits, text(bucket.sequences).size());
    }
    for (const auto& bucket : summary.histogram) {
      // A bucket that has any sequence gets a mark.
      const auto columns = (bucket.sequences * bar_columns + most - 1) / most;
      std::cout << "  " << std::right << std::setw(static_cast<int>(widest)) << name(bucket) << " |" << std::left
                << std::setw(bar_columns) << std::string(static_cast<std::size_t>(columns), '#') << " " << std::right
                << std::setw(static_cast<int>(digits)) << bucket.sequences << "  "
                << percent_text(static_cast<double>(bucket.sequences) / static_cast<double>(sequences)) << "\n";
    }
    std::cout << std::left;
  }

  static void print_json(const indexed::IndexedDataset& data, const indexed::DatasetSummary& summary,
                         const std::vector<Shown>& shown, const std::optional<indexed::TokenCheck>& check) {
    Json out{{"prefix", data.prefix()},
             {"documents", summary.documents},
             {"empty_documents", summary.empty_documents},
             {"sequences", data.sequences()},
             {"tokens", data.tokens()},
             {"type", indexed::name_of(data.type())},
             {"sequence_modes", data.has_modes()},
             {"shortest_document", summary.shortest_document},
             {"longest_document", summary.longest_document},
             {"shortest_sequence", summary.shortest_sequence},
             {"longest_sequence", summary.longest_sequence},
             {"mean_sequence", summary.mean_sequence},
             {"histogram", Json::array()},
             {"shown", Json::array()}};
    for (const auto& bucket : summary.histogram)
      out["histogram"].push_back(
          Json{{"from", bucket.from}, {"to", bucket.to}, {"sequences", bucket.sequences}, {"tokens", bucket.tokens}});
    for (const auto& one : shown) {
      Json document{{"document", one.document}, {"tokens", one.tokens}, {"ids", one.ids}};
      if (!one.words.empty()) document["text"] = one.words;
      out["shown"].push_back(document);
    }
    if (check)
      out["verified"] = Json{{"tokens", check->tokens},
                             {"least_id", check->least},
                             {"greatest_id", check->greatest},
                             {"outside_vocabulary", check->outside},
                             {"unused_bytes", check->unused_bytes},
                             {"out_of_order", check->out_of_order}};
    std::cout << out.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }
};

}  // namespace

void add_data_inspect(Command& data, CommandContext& context) {
  auto work = std::make_shared<Inspect>();
  auto* command = data.add_subcommand("inspect", "Print what PREFIX.bin and PREFIX.idx contain");
  command->add_option("PREFIX", work->prefix, "Name of the files without .bin or .idx")->required();
  command->add_option("--document", work->documents, "Numbers of the documents to show, from 0 [0]")
      ->type_name("N ...");
  command->add_option("--tokens", work->first_tokens, "Number of tokens of each document to show [16]")->not_negative();
  command->add_flag("--verify", work->verify,
                    "Read all tokens; with a tokenizer, ids outside its vocabulary are an error");
  command->add_flag("--json", work->as_json, "Print one JSON object");
  work->tokenizer.add_to(*command);
  command->callback([work, &context] { work->run(context); });
}

}  // namespace tessera::cli
