#include <iomanip>
#include <iostream>

#include "framework/cli/data_commands.h"
#include "framework/cli/meter.h"
#include "framework/parquet/to_jsonl.h"

namespace tessera::cli {

void add_data_to_jsonl(Command& data) {
  auto request = std::make_shared<parquet::ToJsonlRequest>();
  auto* command = data.add_subcommand("to-jsonl", "Convert Parquet files to one file of JSON lines, a row each");
  command->add_option("INPUT", request->inputs, "Parquet files, in this order")->required();
  command->add_option("--output", request->output, "The new file; it replaces an older one at the end")->required();
  command
      ->add_option("--columns", request->columns,
                   "Columns to convert, in this order; \"a.b\" is the field b of the structure a, also of a list of "
                   "structures [all]")
      ->delimiter(',');
  command->callback([request] {
    Meter meter("to-jsonl:");
    const auto made = parquet::to_jsonl(*request, [&](std::int64_t done, std::int64_t all) { meter(done, all); });
    std::cout << request->output << ": " << made.rows << " rows, " << std::fixed << std::setprecision(1)
              << static_cast<double>(made.bytes) * 1e-6 << " MB, in " << meter.seconds() << " s\n";
  });
}

}  // namespace tessera::cli
