// What do saving and loading cost over bare writes and reads of the same bytes? Start it with
//
//   mpirun -n 2 bench_checkpoint FOLDER [--pairs 9] [--no-dd]
//
// FOLDER is on the file system that is measured; benchmarks/checkpoint.py starts it on several, and the same beside
// other programs. The state is that of GPT-2 124M with AdamW, 1.5 GB, of which each rank has an equal part. Each line
// is JSON: a name, and for each repetition seconds of the slowest rank ("wall") and of all processors ("processor");
// "extra" is the memory that the slowest rank needed beyond the state, in MiB.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/report.h"
#include "framework/base/files.h"
#include "framework/checkpoint/state_snapshot.h"
#include "framework/comm/world.h"
#include "framework/training/saving/save_job.h"
#include "framework/training/saving/shared_loading.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece = std::size_t{1} << 20;

/// This rank's rows of every tensor.
class State {
 public:
  State(int rank, int ranks) : rank_(rank), ranks_(ranks) {
    constexpr std::int64_t width = 768;
    add("embedding.word_embeddings.weight", {50304, width});
    add("embedding.position_embeddings.weight", {1024, width});
    for (int layer = 0; layer < 12; ++layer) {
      const auto name = "decoder.layers." + std::to_string(layer) + ".";
      add(name + "self_attention.linear_qkv.weight", {3 * width, width});
      add(name + "self_attention.linear_proj.weight", {width, width});
      add(name + "mlp.linear_fc1.weight", {4 * width, width});
      add(name + "mlp.linear_fc2.weight", {width, 4 * width});
      for (const char* norm : {"input_layernorm", "pre_mlp_layernorm"}) add(name + norm + ".weight", {width, 1});
    }
    memory_ = random_floats(static_cast<std::int64_t>(elements_), 1);
    std::size_t first = 0;
    for (auto& range : ranges_) {
      const Shape extents{rows(range.global_shape[0]), range.global_shape[1]};
      const auto bytes = static_cast<std::size_t>(extents.elements()) * sizeof(float);
      range.tensor = Tensor(memory_.bytes().subspan(first, bytes), DType::float32, extents);
      first += bytes;
    }
  }
  const std::vector<checkpoint::TensorRange>& ranges() const { return ranges_; }
  std::span<std::byte> bytes() { return memory_.bytes().first(elements_ * sizeof(float)); }

 private:
  std::int64_t rows(std::int64_t all) const { return (rank_ + 1) * all / ranks_ - rank_ * all / ranks_; }
  void add(const std::string& name, const Shape& shape) {
    for (const std::string kind : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
      ranges_.push_back({kind + name, shape, {rank_ * shape[0] / ranks_, 0}, {}});
      elements_ += static_cast<std::size_t>(rows(shape[0]) * shape[1]);
    }
  }

  int rank_, ranks_;
  std::size_t elements_ = 0;
  std::vector<checkpoint::TensorRange> ranges_;
  Storage memory_;
};

double mebibytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  return std::stod(words.substr(words.find(key) + key.size())) / 1024;
}

struct Way {
  std::string name;
  std::function<void()> before, body;
  std::vector<float> wall = {}, processor = {}, extra = {};
};

class Bench {
 public:
  Bench(const comm::World& world, fs::path folder)
      : world_(world), folder_(std::move(folder)), state_(rank(), world.size()) {}

  void run(int pairs, bool dd) {
    std::vector<Way> ways = {{"save", [&] { clear("iter_0000001"); }, [&] { save(); }},
                             {"bare write", [&] { clear(bare()); }, [&] { write(); }},
                             {"load", [] {}, [&] { load(); }},
                             {"bare read", [] {}, [&] { read(); }}};
    if (dd) ways.push_back({"dd", [&] { clear("dd"); }, [&] { copy_directly(); }});
    for (int i = -1; i < pairs; ++i)
      for (auto& way : ways) measure(way, i >= 0);
    if (rank() != 0) return;
    for (const auto& way : ways) print(way);
  }

 private:
  int rank() const { return world_.rank(); }
  const comm::Communicator& all() const { return world_.all(); }
  std::string bare() const { return "bare_" + std::to_string(rank()); }
  void clear(const std::string& name) const {
    if (name == bare() || rank() == 0) fs::remove_all(folder_ / name);
  }

  void measure(Way& way, bool counts) {
    way.before();
    sync();
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
    all().barrier("benchmark");
    const double memory = mebibytes("VmRSS:"), worked = processor_seconds(), began = seconds_on(Clock::wall);
    way.body();
    all().barrier("benchmark");
    std::vector<float> most = {static_cast<float>(seconds_on(Clock::wall) - began),
                               static_cast<float>(mebibytes("VmHWM:") - memory)};
    std::vector<float> sum = {static_cast<float>(processor_seconds() - worked)};
    all().all_reduce_max(most, "benchmark");
    all().all_reduce(std::span(sum), "benchmark");
    if (!counts) return;
    way.wall.push_back(most[0]);
    way.extra.push_back(most[1]);
    way.processor.push_back(sum[0]);
  }

  void save() {
    training::SaveTarget target{.root = folder_, .prefix = "", .iteration = 1};
    training::SaveJob(all(), std::move(target), std::make_shared<checkpoint::LiveState>(state_.ranges())).finish();
  }
  void load() {
    const auto from = checkpoint::Checkpoint::open_index(folder_ / "iter_0000001");
    const auto damage = training::load_shared(all(), from, state_.ranges(), true);
    if (!damage.empty()) std::fprintf(stderr, "%s\n", damage.c_str());
  }
  void write() {
    auto file = File::create(folder_ / bare());
    const auto bytes = state_.bytes();
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      file.write(std::span<const std::byte>(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    file.sync();
  }
  void read() {
    const auto file = File::open(folder_ / bare());
    const auto bytes = state_.bytes();
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      file.read_at(at, bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  /// From /dev/zero: its reader costs less than any file's.
  void copy_directly() const {
    if (rank() != 0) return;
    const auto pieces = state_bytes() / (std::size_t{16} << 20) * static_cast<std::size_t>(world_.size());
    const auto command = "dd if=/dev/zero of=" + (folder_ / "dd").string() + " bs=16M count=" + std::to_string(pieces) +
                         " oflag=direct conv=fsync status=none";
    if (std::system(command.c_str()) != 0) std::fprintf(stderr, "dd failed: %s\n", command.c_str());
  }
  std::size_t state_bytes() const { return const_cast<State&>(state_).bytes().size(); }

  static void print(const Way& way) {
    std::printf("{\"name\": \"%s\"", way.name.c_str());
    const auto list = [](const char* key, const std::vector<float>& values) {
      std::printf(", \"%s\": [", key);
      for (std::size_t i = 0; i < values.size(); ++i)
        std::printf("%s%.4f", i == 0 ? "" : ", ", static_cast<double>(values[i]));
      std::printf("]");
    };
    list("wall", way.wall);
    list("processor", way.processor);
    list("extra", way.extra);
    std::printf("}\n");
  }

  const comm::World& world_;
  fs::path folder_;
  State state_;
};

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "give a folder: mpirun -n 2 bench_checkpoint FOLDER\n");
    return 2;
  }
  int pairs = 9;
  bool dd = true;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--pairs" && i + 1 < argc) pairs = std::stoi(argv[i + 1]);
    if (word == "--no-dd") dd = false;
  }
  const comm::World world(comm::Transport::fastest);
  Bench(world, argv[1]).run(pairs, dd);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
