#include <iostream>

#include "framework/cli/data_commands.h"
#include "framework/cli/data_flags.h"
#include "framework/data/indexed_dataset.h"

namespace tessera {
namespace {

struct Inspect {
  std::string prefix;
  std::int64_t first_tokens = 16, document = 0;
  TokenizerFlags tokenizer;

  void run(const CommandContext& context) const {
    const IndexedDataset data(prefix);
    std::int64_t empty = 0, longest = 0, shortest = data.tokens();
    for (std::int64_t d = 0; d < data.documents(); ++d) {
      std::int64_t length = 0;
      for (auto s = data.first_sequence(d); s < data.first_sequence(d + 1); ++s) length += data.length(s);
      empty += length == 0 ? 1 : 0;
      longest = std::max(longest, length);
      shortest = std::min(shortest, length);
    }
    std::cout << "documents   " << data.documents() << "\nempty       " << empty << "\nsequences   " << data.sequences()
              << "\ntokens      " << data.tokens() << "\ntype        " << name_of(data.type()) << "\nlongest     "
              << longest << " tokens\nshortest    " << shortest << " tokens\n";
    show_tokens(data, context);
  }

  void show_tokens(const IndexedDataset& data, const CommandContext& context) const {
    if (data.documents() == 0) return;
    if (document < 0 || document >= data.documents())
      throw ConfigError(text("--document ", document, ": ", prefix, " has the documents 0 to ", data.documents() - 1));
    std::vector<std::int32_t> ids;
    for (auto s = data.first_sequence(document); s < data.first_sequence(document + 1); ++s) {
      const auto count = std::min<std::int64_t>(data.length(s), first_tokens - static_cast<std::int64_t>(ids.size()));
      if (count <= 0) break;
      const auto before = ids.size();
      ids.resize(before + static_cast<std::size_t>(count));
      data.read(s, 0, std::span(ids).subspan(before));
    }
    std::cout << "document " << document << " begins";
    for (const auto id : ids) std::cout << " " << id;
    std::cout << "\n";
    if (!tokenizer.given.empty()) std::cout << tokenizer.make(context.shelves.tokenizers)->decode(ids) << "\n";
  }
};

}  // namespace

void add_data_inspect(Command& data, CommandContext& context) {
  auto work = std::make_shared<Inspect>();
  auto* command = data.add_subcommand("inspect", "Say what is in PREFIX.bin and PREFIX.idx");
  command->add_option("PREFIX", work->prefix, "The files' name without .bin or .idx")->required();
  command->add_option("--document", work->document, "Whose first tokens are shown [0]");
  command->add_option("--tokens", work->first_tokens, "How many of them [16]")->not_negative();
  work->tokenizer.add_to(*command);
  command->callback([work, &context] { work->run(context); });
}

}  // namespace tessera
