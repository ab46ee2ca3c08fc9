#include <iostream>

#include "framework/cli/data_commands.h"
#include "framework/cli/meter.h"
#include "framework/indexed/prefixes.h"
#include "framework/log/log.h"
#include "framework/preprocessing/merge.h"

namespace tessera::cli {
namespace {

const log::Logger data_merge_logger("data");

struct Merge {
  preprocessing::MergeRequest request;
  std::string folder;

  void run() {
    if (request.prefixes.empty() == folder.empty())
      throw ConfigError("give either prefixes, or the folder of all datasets to merge with --input");
    std::vector<std::string> ignored;
    if (!folder.empty()) request.prefixes = indexed::prefixes_in(folder, ignored);
    for (const auto& name : ignored) data_merge_logger.info(text("note: ", folder, ": ", name, " is not a token file"));
    Meter meter("merge:");
    const auto made =
        preprocessing::merge_datasets(request, [&](std::int64_t done, std::int64_t all) { meter(done, all); });
    std::cout << request.output_prefix << ": " << request.prefixes.size() << " datasets, " << made.documents
              << " documents, " << made.sequences << " sequences" << (made.modes ? " with modes" : "") << ", "
              << made.tokens << " tokens\n";
  }
};

}  // namespace

void add_data_merge(Command& data) {
  auto work = std::make_shared<Merge>();
  auto& request = work->request;
  auto* command = data.add_subcommand("merge", "Concatenate token files (.bin and .idx)");
  auto* prefixes = command->add_option("PREFIX", request.prefixes, "Names of the files without .bin or .idx, in order");
  command
      ->add_option("--input", work->folder,
                   "Folder: all datasets in it, sorted by name as tools/merge_datasets.py does")
      ->excludes(prefixes);
  command->add_option("--output-prefix", request.output_prefix, "Name of the new files")->required();
  command->add_flag("--multimodal", request.multimodal,
                    "Require a mode for each sequence; modes are kept in any case if all datasets have them");
  command->callback([work] { work->run(); });
}

}  // namespace tessera::cli
