#include <iostream>

#include "framework/cli/data_commands.h"
#include "framework/cli/meter.h"
#include "framework/multimodal/llava.h"

namespace tessera::cli {

void add_data_llava_to_mllm(Command& data) {
  auto request = std::make_shared<multimodal::LlavaRequest>();
  auto* command =
      data.add_subcommand("llava-to-mllm", "Convert LLaVA's instruction data to the records of dataset_type mllm");
  const auto path = [&](const char* name, std::string& value, const char* help) {
    command->add_option(name, value, text(help, " [", value, "]"));
  };
  path("--input", request->input, "LLaVA's list of records, a JSON file");
  path("--images", request->images, "Folder of the images; a record whose image is not there is dropped");
  path("--output", request->output, "The new file, which must not exist yet");
  command->callback([request] {
    Meter meter("llava-to-mllm:");
    const auto made =
        multimodal::convert_llava(*request, [&](std::int64_t done, std::int64_t all) { meter(done, all); });
    if (made.dropped > 0)
      std::cout << "dropped " << made.dropped << " records whose image is not in " << request->images << "\n";
    std::cout << "finish converting dataset into " << request->output << ": " << made.records << " records\n";
  });
}

}  // namespace tessera::cli
