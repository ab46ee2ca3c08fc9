// A model of 175 billion parameters, saved by 1,024 ranks: what one rank opens and plans to read. The files have no
// data: they are as long as they would be, and empty. The numbers are those of docs/checkpoints.md, "At scale".
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/manifest.h"
#include "framework/checkpoint/writer.h"
#include "framework/training/saving/box_message.h"
#include "framework/training/saving/shared_loading.h"
#include "tests/own_folder.h"
#include "tests/sanitized.h"

namespace tessera::training {
namespace {

namespace fs = std::filesystem;
using checkpoint::Manifest;

constexpr std::int64_t hidden = 12288, layers = 96, vocabulary = 51200, positions = 2048;
constexpr double parameters = 12.0 * layers * hidden * hidden;  // and about a thousandth more

struct Layout {
  std::int64_t tensor, data, stages;
  std::int64_t ranks() const { return tensor * data * stages; }
};

/// The part `which` of `of` parts of a box along `dim`.
Box part_of_box(Box box, std::size_t dim, std::int64_t which, std::int64_t of) {
  const auto all = box.extent[dim];
  box.begin[dim] += which * all / of;
  box.extent[dim] = (which + 1) * all / of - which * all / of;
  return box;
}

/// Calls `visit(name, shape, box that the rank holds, box that it owns)` for each weight of a rank.
template <class Visit>
void for_each_weight(const Layout& layout, std::int64_t rank, const Visit& visit) {
  const auto tensor = rank % layout.tensor, data = rank / layout.tensor % layout.data;
  const auto stage = rank / layout.tensor / layout.data;
  const auto weight = [&](const std::string& name, const Shape& shape, int sharded) {
    auto box = Box::whole(shape);
    if (sharded >= 0) box = part_of_box(box, static_cast<std::size_t>(sharded), tensor, layout.tensor);
    auto own = part_of_box(box, 0, data, layout.data);
    if (sharded < 0) own = part_of_box(own, 0, tensor, layout.tensor);
    visit(name, shape, box, own);
  };
  if (stage == 0) {
    weight("embedding.word_embeddings.weight", Shape{vocabulary, hidden}, 0);
    weight("embedding.position_embeddings.weight", Shape{positions, hidden}, -1);
  }
  for (auto layer = stage * layers / layout.stages; layer < (stage + 1) * layers / layout.stages; ++layer) {
    const auto of_layer = [&](const char* name, const Shape& shape, int sharded) {
      weight(text("decoder.layers.", layer, ".", name), shape, sharded);
    };
    for (const char* norm : {"input_layernorm.weight", "input_layernorm.bias", "pre_mlp_layernorm.weight",
                             "pre_mlp_layernorm.bias", "self_attention.linear_proj.bias", "mlp.linear_fc2.bias"})
      of_layer(norm, Shape{hidden}, -1);
    of_layer("self_attention.linear_qkv.weight", Shape{3 * hidden, hidden}, 0);
    of_layer("self_attention.linear_qkv.bias", Shape{3 * hidden}, 0);
    of_layer("self_attention.linear_proj.weight", Shape{hidden, hidden}, 1);
    of_layer("mlp.linear_fc1.weight", Shape{4 * hidden, hidden}, 0);
    of_layer("mlp.linear_fc1.bias", Shape{4 * hidden}, 0);
    of_layer("mlp.linear_fc2.weight", Shape{hidden, 4 * hidden}, 1);
  }
  if (stage + 1 == layout.stages)
    for (const char* norm : {"decoder.final_layernorm.weight", "decoder.final_layernorm.bias"})
      weight(norm, Shape{hidden}, -1);
}

constexpr std::array kinds = {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."};

std::string numbered(const char* kind, std::int64_t number, const char* ending) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "%s_%05d%s", kind, static_cast<int>(number), ending);
  return name.data();
}

Manifest manifest_of_writer(const Layout& layout, std::int64_t rank) {
  Manifest manifest;
  manifest.iteration = 1;
  const auto model = numbered("model", rank, ".safetensors"), optimizer = numbered("optimizer", rank, ".safetensors");
  for (const auto& file : {model, optimizer}) manifest.files[file] = {1 << 14, 1 << 14, 0};
  for_each_weight(layout, rank, [&](const std::string& name, const Shape& shape, const Box&, const Box& own) {
    for (const std::string kind : kinds) {
      auto& file = manifest.files[kind.empty() ? model : optimizer];
      const auto bytes = static_cast<std::uint64_t>(own.elements()) * sizeof(float);
      manifest.tensors[kind + name] = {
          DType::float32,
          shape,
          {{kind.empty() ? model : optimizer, file.bytes, bytes, own.begin, Shape(own.extent), 0}}};
      file.bytes += bytes;
    }
  });
  return manifest;
}

/// What a rank wants without a distributed optimizer of weights, and of its state with one.
std::string list_of_rank(const Layout& layout, std::int64_t rank) {
  std::vector<checkpoint::TensorRange> wanted;
  for_each_weight(layout, rank, [&](const std::string& name, const Shape& shape, const Box& held, const Box& own) {
    for (const std::string kind : kinds) {
      const auto& box = kind.empty() ? held : own;
      wanted.push_back(
          {kind + name, shape, box.begin, Tensor::without_elements(DType::float32, Shape(box.extent)), {}});
    }
  });
  return list_of_wanted(wanted);
}

std::int64_t kibibytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  return std::stoll(words.substr(words.find(key) + key.size() + 1));
}

class LoadingAtScale : public InOwnFolder {
 protected:
  const Layout saved{8, 8, 16};
  const fs::path folder = "iter_0000001";

  void save() {
    const fs::path unfinished = "iter_0000001_tmp";
    checkpoint::CheckpointWriter writer(".", "", 1, static_cast<int>(saved.ranks()));
    writer.begin();
    std::vector<checkpoint::WrittenPart> parts;
    for (std::int64_t rank = 0; rank < saved.ranks(); ++rank) {
      const auto manifest = manifest_of_writer(saved, rank);
      const auto words = checkpoint::write_manifest(manifest);
      std::ofstream(unfinished / numbered("manifest", rank, ".json")) << words;
      for (const auto& [name, file] : manifest.files) {
        std::ofstream(unfinished / name).close();
        fs::resize_file(unfinished / name, file.bytes);
      }
      parts.push_back({static_cast<int>(rank), crc32c(words), words.size()});
    }
    writer.commit(parts, {});
  }

  /// Deletes all files of writers but those of [first, end): who opens another one, fails.
  void keep(std::int64_t first, std::int64_t end) const {
    for (std::int64_t rank = 0; rank < saved.ranks(); ++rank) {
      if (rank >= first && rank < end) continue;
      fs::remove(folder / numbered("manifest", rank, ".json"));
      for (const char* kind : {"model", "optimizer"}) fs::remove(folder / numbered(kind, rank, ".safetensors"));
    }
  }

  /// Opens the checkpoint and plans as `rank` of `layout`; returns the bytes that it will read. In a process of its
  /// own, which may use 200 MiB.
  double planned(const Layout& layout, std::int64_t rank) const {
    std::vector<std::string> lists;  // come from the other ranks
    for (std::int64_t other = 0; other < layout.ranks(); ++other) lists.push_back(list_of_rank(layout, other));
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    const auto child = fork();
    if (child == 0) {
      std::array<double, 2> out{-1, -1};
      try {
        const auto before = kibibytes("VmRSS:");
        const auto from = checkpoint::Checkpoint::open_index(folder);
        const auto plan = plan_loading(from, lists, static_cast<std::size_t>(rank));
        out = {static_cast<double>(plan.bytes()), static_cast<double>(kibibytes("VmHWM:") - before)};
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      _exit(::write(ends[1], out.data(), sizeof out) == sizeof out ? 0 : 1);
    }
    std::array<double, 2> out{};
    EXPECT_EQ(::read(ends[0], out.data(), sizeof out), static_cast<ssize_t>(sizeof out));
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
    std::printf("rank %d of %d: %.0f MiB of memory\n", static_cast<int>(rank), static_cast<int>(layout.ranks()),
                out[1] / 1024);
    EXPECT_LT(out[1], 200 * 1024);
    return out[0];
  }
};

TEST_F(LoadingAtScale, ARankOpensItsPartsAloneAndReadsItsShareOnAnyLayout) {
  if (sanitized) GTEST_SKIP() << "measures memory";
  save();
  std::printf("manifest.json: %.1f MB\n", static_cast<double>(fs::file_size(folder / "manifest.json")) / 1e6);
  EXPECT_LT(fs::file_size(folder / "manifest.json"), 4'000'000);
  const auto near = [](double bytes, double expected) { return std::abs(bytes / expected - 1) < .02; };
  const double share = 12 * parameters / 1024;  // 2.04 GB
  keep(300, 304);
  const auto same = planned(saved, 301);
  EXPECT_TRUE(near(same, share)) << same;
  const auto fewer = planned({4, 8, 8}, 75);  // of 256 ranks
  EXPECT_TRUE(near(fewer, 4 * share)) << fewer;
  const auto more = planned({8, 16, 16}, 603);  // of 2,048: half of the part of writer 301
  EXPECT_TRUE(std::abs(more / (share / 2) - 1) < .1) << more;
}

}  // namespace
}  // namespace tessera::training
