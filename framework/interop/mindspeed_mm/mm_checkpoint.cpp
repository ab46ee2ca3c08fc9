#include "framework/interop/mindspeed_mm/mm_checkpoint.h"

#include "framework/base/error.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/mindspeed_mm/mm_writer.h"

namespace tessera::mindspeed_mm {
namespace {

namespace fs = std::filesystem;

constexpr const char* names_table = "weights/mindspeed_mm.yaml";

bool is_of_mm(const fs::path& ranks) {
  try {
    return has_tensors_of(ranks, MmTable(options::Mappings().table(names_table)));
  } catch (const Error&) {
    return false;  // the reader of Megatron-LM's checkpoints says what is wrong
  }
}

}  // namespace

std::optional<fs::path> MmFormat::find(const fs::path& folder) const {
  const auto ranks = megatron::MegatronFormat().find(folder);
  return ranks && is_of_mm(*ranks) ? ranks : std::nullopt;
}

std::vector<checkpoint::FoundCheckpoint> MmFormat::list(const fs::path& folder) const {
  auto all = megatron::MegatronFormat().list(folder);
  std::erase_if(all, [](const auto& found) { return !is_of_mm(found.folder); });
  for (auto& found : all) found.format = this;
  return all;
}

std::unique_ptr<checkpoint::OpenedCheckpoint> MmFormat::open(const fs::path& folder,
                                                             const options::Mappings& mappings) const {
  return std::make_unique<MmCheckpoint>(folder, mappings);
}

MmCheckpoint::MmCheckpoint(const fs::path& folder, const options::Mappings& mappings)
    : folder_(folder),
      table_(mappings.table(names_table)),
      layout_(layout_of_folder(folder, table_)),
      blobs_(checkpoint::read_blobs_beside(folder)) {
  open(std::nullopt);
}

void MmCheckpoint::open(std::optional<bool> tied) {
  tensors_.emplace(folder_, layout_, table_, tied);
  ours_.clear();
  for (const auto& [name, tensor] : tensors_->tensors()) ours_.emplace(our_name(*tensor.row, tensor.layer), name);
}

void MmCheckpoint::describe_by(const fs::path& transformers, const options::Mappings& mappings) {
  const auto config = hugging_face::read_hugging_face_config(transformers / "config.json", mappings);
  recipe_ = hugging_face::recipe_with(config.model_config);
  tokenizer_options_ = hugging_face::folder_tokenizer_sets(transformers);
  blobs_ = hugging_face::HuggingFaceFormat().carried_files(transformers);
  const auto* untied = config.model_config.find("untie_embeddings_and_output_weights");
  open(untied == nullptr || untied->scalar != "true");
}

const MmTensor& MmCheckpoint::tensor(const std::string& name) const {
  const auto found = ours_.find(name);
  if (found == ours_.end()) throw ConfigError(text(folder_.string(), ": has no tensor '", name, "'"));
  return tensors_->tensors().at(found->second);
}

std::vector<std::string> MmCheckpoint::names() const {
  std::vector<std::string> all;
  for (const auto& [ours, theirs] : ours_) all.push_back(ours);
  return all;
}

Shape MmCheckpoint::shape(const std::string& name) const {
  const auto& theirs = tensor(name).shape;
  // Only the patch embedding has more dimensions; ours has a row for each of its rows.
  return theirs.rank() <= 2 ? theirs : Shape{theirs[0], theirs.elements() / theirs[0]};
}

void MmCheckpoint::read(const std::string& name, const Tensor& into) const {
  const auto& theirs = tensor(name);
  std::vector<std::byte> elements(theirs.bytes());
  tensors_->read(theirs, elements);
  const Tensor all{std::span(elements), theirs.type, theirs.shape};
  checkpoint::must_be_finite(all, text(folder_.string(), ": tensor '", theirs.name(), "'"));
  checkpoint::copy_converted(all, into);
}

options::Value MmCheckpoint::recipe() const {
  if (recipe_) return *recipe_;
  throw ConfigError(text(folder_.string(),
                         ": a checkpoint of MindSpeed-MM does not describe its model; name the folder of Transformers "
                         "that it was made of with --like, or load it in a run whose recipe has model_config"));
}

std::vector<std::string> MmCheckpoint::notes() const {
  return {text(folder_.string(), ": ", table_.assumption_of(table_.releases().front()),
               "; such a folder has to pass through `tessera checkpoint mm-convert Qwen2VLConverter mm_to_hf "
               "--mm-version RELEASE`")};
}

std::string MmCheckpoint::description() const {
  return text("MindSpeed-MM, ", layout_.tensor_parallel, " tensor-parallel x ", layout_.stages(), " pipeline ranks");
}

}  // namespace tessera::mindspeed_mm
