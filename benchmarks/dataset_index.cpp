// How long does the index of many sequences take to build, and how much memory? benchmarks/dataset_index.py runs this
// beside Megatron-LM's own code on the same lengths.
#include <chrono>
#include <fstream>
#include <iostream>

#include "framework/gpt/gpt_index.h"
#include "framework/gpt/md5.h"

namespace tessera {
namespace {

/// Sequences that have a length and no tokens.
class LengthsOnly final : public indexed::TokenSource {
 public:
  explicit LengthsOnly(const std::string& file) : array_(gpt::IndexArray::map(file)) {}
  std::int64_t sequences() const override { return array_.size(); }
  std::int64_t length(std::int64_t s) const override { return array_[s]; }
  const std::byte* lengths() const override { return array_.bytes().data(); }
  void read(std::int64_t, std::int64_t, std::span<std::int32_t>) const override {
    throw BugError("there are no tokens");
  }
  std::string place(std::int64_t s, std::int64_t) const override { return text("sequence ", s); }

 private:
  gpt::IndexArray array_;
};

/// A line of /proc/self/status, in bytes: VmRSS is in memory now, VmHWM was at most since the reset.
std::int64_t memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == name + ":") {
      std::int64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  return 0;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

std::string sum_of(const gpt::IndexArray& array) {
  return gpt::md5_hex({reinterpret_cast<const char*>(array.bytes().data()), array.bytes().size()});
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(const std::string& file, std::int64_t seq_length, std::int64_t samples, int threads) {
  const LengthsOnly source(file);
  gpt::GptIndexRequest request{{0, source.sequences()}, seq_length, samples, 1234};
  std::int64_t touched = 0;  // the file is read before, as by the peer
  for (std::int64_t s = 0; s < source.sequences(); ++s) touched += source.length(s);
  reset_peak();
  const auto before = memory("VmRSS");
  const auto begin = std::chrono::steady_clock::now();
  const auto plan = gpt::plan_gpt_index(source, request);
  const auto index = gpt::build_gpt_index(source, request, plan, threads);
  const auto seconds = seconds_since(begin);
  const auto used = memory("VmHWM") - before;
  std::int64_t bytes = 0;
  for (const auto* array : {&index.documents, &index.starts, &index.shuffle})
    bytes += static_cast<std::int64_t>(array->bytes().size());
  std::cout << "{\"seconds\": " << seconds << ", \"memory\": " << used << ", \"bytes\": " << bytes
            << ", \"tokens\": " << touched << ", \"epochs\": " << plan.epochs << ", \"samples\": " << plan.samples
            << ", \"md5\": [\"" << sum_of(index.documents) << "\", \"" << sum_of(index.starts) << "\", \""
            << sum_of(index.shuffle) << "\"]}" << std::endl;
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int count, char** words) {
  if (count != 5) {
    std::cerr << "dataset_index LENGTHS.npy SEQ_LENGTH SAMPLES THREADS\n";
    return 2;
  }
  try {
    return tessera::run(words[1], std::stoll(words[2]), std::stoll(words[3]), std::stoi(words[4]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
