#include <iostream>

#include "framework/cli/data_commands.h"
#include "framework/cli/meter.h"
#include "framework/indexed/token_checksums.h"

namespace tessera::cli {
namespace {

struct Checksum {
  std::vector<std::string> prefixes;
  bool verify = false;

  void run() const {
    for (const auto& prefix : prefixes) {
      Meter meter("checksums:");
      const auto progress = [&](std::int64_t done, std::int64_t all) { meter(done, all); };
      if (verify)
        indexed::verify_checksums(prefix, progress);
      else
        indexed::TokenChecksums::write(prefix, progress);
      std::cout << indexed::TokenChecksums::file_of(prefix) << (verify ? ": both files are as they were" : ": written")
                << "\n";
    }
  }
};

}  // namespace

void add_data_checksum(Command& data) {
  auto work = std::make_shared<Checksum>();
  auto* command =
      data.add_subcommand("checksum", "Write PREFIX.crc: checksums that every read of these token files compares");
  command->add_option("PREFIX", work->prefixes, "Names of the files without .bin or .idx")->required();
  command->add_flag("--verify", work->verify, "Compare both files with PREFIX.crc, and write nothing");
  command->callback([work] { work->run(); });
}

}  // namespace tessera::cli
