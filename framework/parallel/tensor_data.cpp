#include "framework/parallel/tensor_data.h"

#include <cstring>
#include <sstream>

#include "framework/comm/together.h"

namespace tessera::parallel {
namespace {

constexpr auto broadcast_name = "broadcast_data";
constexpr std::size_t alignment = 64;
constexpr char fine = '+', failed = '-';

std::size_t bytes_of(DType type, const Shape& shape) {
  const auto bytes = static_cast<std::size_t>(shape.elements()) * size_of(type);
  return (bytes + alignment - 1) / alignment * alignment;
}

const Tensor& checked(const std::map<std::string, Tensor>& data, const std::string& key, DType type) {
  const auto found = data.find(key);
  if (found == data.end()) throw ShapeError(text(broadcast_name, ": the first process has no tensor '", key, "'"));
  if (found->second.dtype() != type)
    throw ShapeError(
        text(broadcast_name, ": '", key, "' is ", name_of(found->second.dtype()), "; expected ", name_of(type)));
  return found->second;
}

/// The shapes as text, in the order of `keys`: for each the number of dimensions, then the extents.
std::string tell_shapes(std::span<const std::string> keys, const std::map<std::string, Tensor>& data, DType type) {
  std::string told;
  for (const auto& key : keys) {
    const auto& shape = checked(data, key, type).shape();
    told += text(shape.rank(), " ");
    for (const auto extent : shape.dims()) told += text(extent, " ");
  }
  return told;
}

std::map<std::string, Shape> heard_shapes(std::span<const std::string> keys, const std::string& told) {
  std::istringstream in(told);
  std::map<std::string, Shape> shapes;
  for (const auto& key : keys) {
    std::size_t dims = 0;
    in >> dims;
    std::vector<std::int64_t> extents(dims);
    for (auto& extent : extents) in >> extent;
    shapes[key] = Shape(std::span<const std::int64_t>(extents));
  }
  must(!in.fail(), "members of a group ask for the same keys");
  return shapes;
}

}  // namespace

// One allocation for all tensors, so that broadcast_data can send them in one message.
OwnedTensors::OwnedTensors(DType type, const std::map<std::string, Shape>& shapes) {
  for (const auto& [name, shape] : shapes) size_ += bytes_of(type, shape);
  memory_ = std::make_unique<std::byte[]>(size_);
  std::size_t at = 0;
  for (const auto& [name, shape] : shapes) {
    const auto bytes = bytes_of(type, shape);
    tensors_[name] = Tensor(this->bytes().subspan(at, bytes), type, shape);
    at += bytes;
  }
}

const Tensor& OwnedTensors::operator[](const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw ShapeError(text("tensors: there is none named '", name, "'"));
  return found->second;
}

OwnedTensors broadcast_data(std::span<const std::string> keys, const std::map<std::string, Tensor>& data, DType type,
                            const comm::Communicator& group) {
  // An error on the first rank travels in place of the shapes, so that the others do not wait for data.
  const bool first = group.rank() == 0;
  std::string told;
  std::exception_ptr own;
  if (first) {
    try {
      told = fine + tell_shapes(keys, data, type);
    } catch (const ShapeError& error) {
      own = std::current_exception();
      told = failed + std::string(error.what());
    }
  }
  told = group.broadcast(told, 0, broadcast_name);
  if (own) std::rethrow_exception(own);
  if (told[0] == failed) throw comm::PeerFailed(text("rank ", group.world_ranks()[0], ": ", told.substr(1)), false);
  OwnedTensors out(type, heard_shapes(keys, told.substr(1)));
  if (first)
    for (const auto& [key, tensor] : out.all())
      std::memcpy(tensor.raw().data(), data.at(key).raw().data(), tensor.bytes());
  group.broadcast(out.bytes(), 0, broadcast_name);
  return out;
}

Tensor split_tensor_into_1d_equal_chunks(const Tensor& whole, const comm::Communicator& group) {
  if (whole.elements() % group.size() != 0)
    throw ShapeError(text("split_tensor_into_1d_equal_chunks: ", whole.elements(), " elements of ", whole.shape(),
                          " do not divide by ", group.size(), " processes"));
  const auto part = whole.elements() / group.size();
  return whole.reshaped({whole.elements()}).slice(part * group.rank(), part);
}

void gather_split_1d_tensor(const Tensor& part, const Tensor& whole, const comm::Communicator& group) {
  if (part.dtype() != whole.dtype() || part.elements() * group.size() != whole.elements())
    throw ShapeError(text("gather_split_1d_tensor: ", group.size(), " parts of ", part.shape(), " ",
                          name_of(part.dtype()), " do not make a whole of ", whole.shape(), " ",
                          name_of(whole.dtype())));
  if (group.size() == 1) {
    if (part.raw().data() != whole.raw().data()) std::memcpy(whole.raw().data(), part.raw().data(), part.bytes());
    return;
  }
  group.all_gather(part.raw(), whole.raw(), "gather_split_1d_tensor");
}

}  // namespace tessera::parallel
