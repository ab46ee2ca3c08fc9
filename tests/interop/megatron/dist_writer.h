#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/interop/torch/torch_file.h"
#include "framework/tensor/tensor.h"

namespace tessera::megatron {

/// Writes a distributed checkpoint of Megatron-LM to the current folder, value by value, also such as no program
/// writes: change members before write().
class DistWriter {
 public:
  struct Chunk {
    std::string key;
    std::vector<std::int64_t> offsets, sizes;
    std::int64_t begin = 0, bytes = 0;
    std::string file = "__0_0.distcp";
    bool indexed = true;  ///< among the chunks of its tensor
    bool stored = true;   ///< with a place
    std::string transform = {};
  };
  struct About {
    std::vector<std::int64_t> size, flattened_from = {};
    std::string type = "float32";
  };

  std::vector<Chunk> chunks;
  std::map<std::string, About> tensors;
  std::vector<std::string> objects;  ///< keys of chunks without offsets
  std::string root = "torch.distributed.checkpoint.metadata Metadata";
  std::string stray_global = {};  ///< in planner_data
  std::string common_iteration = "10";
  std::string true_argument = {};  ///< of the run, in common.pt
  std::int64_t plans = 0;          ///< entries of all_local_plans

  Chunk& add(const std::string& key, const std::vector<std::int64_t>& size, const std::vector<std::int64_t>& offsets,
             std::vector<float> elements, const std::vector<std::int64_t>& extents,
             const std::vector<std::int64_t>& flattened_from = {}) {
    torch::TorchFileWriter writer;
    writer.tensor(Tensor(std::span(elements), Shape(extents)));
    tensors[key] = {size, flattened_from};
    return append(writer, key, offsets, extents);
  }
  void add_object(const std::string& key, const std::function<void(torch::TorchFileWriter&)>& write_value) {
    torch::TorchFileWriter writer;
    write_value(writer);
    append(writer, key, {}, {});
    objects.push_back(key);
  }

  void write() {
    std::ofstream("__0_0.distcp", std::ios::binary) << content_;
    write_file_atomic("metadata.json",
                      std::string(R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})"));
    torch::TorchFileWriter common;
    common.pickle.empty_dict();
    common.pickle.mark();
    common.pickle.text("iteration");
    common.pickle.integer(std::stoll(common_iteration));
    if (!true_argument.empty()) {
      common.pickle.text("args");
      common.pickle.global("argparse", "Namespace");
      common.pickle.empty_tuple();
      common.pickle.make();
      common.pickle.empty_dict();
      common.pickle.text(true_argument);
      common.pickle.boolean(true);
      common.pickle.set_item();
      common.pickle.state();
    }
    common.pickle.set_items();
    common.write("common.pt");
    write_file_atomic(".metadata", index());
  }

  std::string index() {
    out_ = torch::PickleWriter();
    const auto dot = root.find(' ');
    object(root.substr(0, dot).c_str(), root.substr(dot + 1).c_str());
    dict("state_dict_metadata", [&] {
      for (const auto& [key, about] : tensors) write_tensor(key, about);
      for (const auto& key : objects) {
        out_.text(key);
        out_.global("torch.distributed.checkpoint.metadata", "BytesStorageMetadata");
        out_.empty_tuple();
        out_.make();
      }
    });
    dict("planner_data", [&] {
      if (stray_global.empty()) return;
      out_.text("stray");
      const auto space = stray_global.find(' ');
      out_.global(stray_global.substr(0, space), stray_global.substr(space + 1));
    });
    dict("storage_data", [&] {
      for (const auto& chunk : chunks)
        if (chunk.stored) write_place(chunk);
    });
    dict("mcore_data", [&] {
      for (const auto& tensor : tensors)
        if (!tensor.second.flattened_from.empty())
          dict(tensor.first, [&] {
            out_.text("nd_reformulated_orig_global_shape");
            out_.mark();
            for (const auto one : tensor.second.flattened_from) out_.integer(one);
            out_.tuple();
          });
    });
    out_.text("all_local_plans");
    out_.empty_list();
    out_.mark();
    for (std::int64_t i = 0; i < plans; ++i) write_place(chunks.front());
    out_.append_items();
    end();
    return out_.finish();
  }

 private:
  Chunk& append(torch::TorchFileWriter& writer, const std::string& key, const std::vector<std::int64_t>& offsets,
                const std::vector<std::int64_t>& extents) {
    writer.write("one.pt");
    const auto bytes = read_file("one.pt");
    chunks.push_back(
        {key, offsets, extents, static_cast<std::int64_t>(content_.size()), static_cast<std::int64_t>(bytes.size())});
    content_ += bytes;
    return chunks.back();
  }
  void object(const std::string& module, const std::string& name) {
    out_.global(module, name);
    out_.empty_tuple();
    out_.make();
    out_.empty_dict();
    out_.mark();
  }
  void end() {
    out_.set_items();
    out_.state();
  }
  void dict(const std::string& key, const std::function<void()>& items) {
    out_.text(key);
    out_.empty_dict();
    out_.mark();
    items();
    out_.set_items();
  }
  void numbers(const std::vector<std::int64_t>& all) {
    out_.global("torch", "Size");
    out_.mark();
    out_.mark();
    for (const auto one : all) out_.integer(one);
    out_.tuple();
    out_.tuple();
    out_.call();
  }
  void write_tensor(const std::string& key, const About& about) {
    const std::string metadata = "torch.distributed.checkpoint.metadata";
    out_.text(key);
    object(metadata, "TensorStorageMetadata");
    out_.text("properties");
    out_.global(metadata, "TensorProperties");
    out_.empty_tuple();
    out_.make();
    out_.mark();
    out_.global("torch", about.type);
    out_.tuple();
    out_.state();
    out_.text("size");
    numbers(about.size);
    out_.text("chunks");
    out_.empty_list();
    out_.mark();
    for (const auto& chunk : chunks) {
      if (chunk.key != key || !chunk.indexed) continue;
      object(metadata, "ChunkStorageMetadata");
      out_.text("offsets");
      numbers(chunk.offsets);
      out_.text("sizes");
      numbers(chunk.sizes);
      end();
    }
    out_.append_items();
    end();
  }
  void write_place(const Chunk& chunk) {
    object("torch.distributed.checkpoint.metadata", "MetadataIndex");
    out_.text("fqn");
    out_.text(chunk.key);
    if (!chunk.sizes.empty()) {
      out_.text("offset");
      numbers(chunk.offsets);
    }
    end();
    object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out_.text("relative_path");
    out_.text(chunk.file);
    out_.text("offset");
    out_.integer(chunk.begin);
    out_.text("length");
    out_.integer(chunk.bytes);
    if (!chunk.transform.empty()) {
      out_.text("transform_descriptors");
      out_.empty_list();
      out_.mark();
      out_.text(chunk.transform);
      out_.append_items();
    }
    end();
  }

  torch::PickleWriter out_;
  std::string content_;
};

}  // namespace tessera::megatron
