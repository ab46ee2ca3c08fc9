#include <iomanip>
#include <iostream>

#include "framework/base/number_text.h"
#include "framework/cli/data_commands.h"
#include "framework/cli/data_flags.h"
#include "framework/cli/meter.h"
#include "framework/data/indexed_dataset.h"

namespace tessera {
namespace {

/// Megatron-LM's line of progress.
void tell(const PreprocessProgress& now, double seconds) {
  const auto rate = [&](double count) { return short_number(seconds > 0 ? count / seconds : 0); };
  std::cerr << "Processed " << now.documents << " documents (" << rate(static_cast<double>(now.documents))
            << " docs/s, " << rate(static_cast<double>(now.bytes) * 1e-6) << " MB/s).\n";
}

struct Preprocess {
  PreprocessRequest request;
  TokenizerFlags tokenizer;

  void run(const CommandContext& context) const {
    const auto chosen = tokenizer.make(context.shelves.tokenizers);
    Meter meter("preprocess:");
    std::int64_t bytes = 0;
    const auto made = preprocess(*chosen, request, [&](const PreprocessProgress& now) {
      bytes = now.all_bytes;
      if (request.report_every == 0) return meter(now.bytes, now.all_bytes);
      if (now.documents % request.report_every == 0) tell(now, meter.seconds());
    });
    const auto megabytes = static_cast<double>(bytes) * 1e-6;
    for (const auto& one : made)
      std::cout << one.prefix << ": " << one.documents << " documents, " << one.sequences << " sequences, "
                << one.tokens << " tokens of " << name_of(token_type_for(chosen->vocab_size())) << "\n";
    std::cout << std::fixed << std::setprecision(1) << megabytes << " MB of input in " << meter.seconds() << " s\n";
  }
};

}  // namespace

void add_data_preprocess(Command& data, CommandContext& context) {
  auto work = std::make_shared<Preprocess>();
  auto* command = data.add_subcommand("preprocess",
                                      "Turn text into token files: PREFIX_KEY_document.bin and .idx from JSON lines, "
                                      "PREFIX.bin and .idx from plain text");
  auto& request = work->request;
  command->add_option("--input", request.inputs, "Files to read, in this order")->required();
  command->add_option("--output-prefix", request.output_prefix, "Where the token files go")->required();
  add_format(*command, request.format);
  command->add_option("--json-keys,--json-key", request.json_keys,
                      "Keys whose values are texts; one pair of files for each [text]");
  command->add_flag("--append-eod", request.append_eod, "Put the end-of-document token behind each document");
  command->add_option("--workers", request.workers, "Threads; the files do not depend on it [1]")->between(1, 1024);
  command
      ->add_option("--log-interval", request.report_every,
                   "Print the progress after every so many documents; 0: only on a terminal, on one line [0]")
      ->not_negative();
  work->tokenizer.add_to(*command);
  command->callback([work, &context] { work->run(context); });
}

}  // namespace tessera
