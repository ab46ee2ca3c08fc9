#include <iostream>

#include "framework/base/files.h"
#include "framework/cli/data_commands.h"
#include "framework/cli/meter.h"
#include "framework/data/indexed_dataset.h"

namespace tessera {

void add_data_merge(Command& data) {
  struct Merge {
    std::vector<std::string> inputs;
    std::string output;
  };
  auto work = std::make_shared<Merge>();
  auto* command = data.add_subcommand("merge", "Put token files one behind the other");
  command->add_option("PREFIX", work->inputs, "Names of the files without .bin or .idx, in order")->required();
  command->add_option("--output-prefix", work->output, "Name of the new files")->required();
  command->callback([work] {
    std::vector<IndexedDataset> sources;
    std::vector<std::filesystem::path> read;
    for (const auto& prefix : work->inputs) {
      sources.emplace_back(prefix);
      for (const auto* end : {".bin", ".idx"}) read.emplace_back(prefix + end);
    }
    refuse_overwriting(read, IndexedDatasetBuilder::files(work->output));
    IndexedDatasetBuilder builder(work->output, sources.front().type());
    Meter meter("merge:");
    for (std::size_t i = 0; i < sources.size(); ++i) {
      builder.add(sources[i]);
      meter(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(sources.size()));
    }
    builder.finish();
    std::cout << work->output << ": " << builder.tokens() << " tokens\n";
  });
}

}  // namespace tessera
