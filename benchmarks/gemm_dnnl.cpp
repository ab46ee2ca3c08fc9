#include "benchmarks/gemm_dnnl.h"

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

namespace tessera {
namespace {

dnnl::memory::data_type type_of(DType type) {
  return type == DType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

}  // namespace

std::function<void()> dnnl_product(const kernels::MatrixProduct& p, int threads) {
  for (const DType type : {p.a.type(), p.b.type(), p.c.type})
    if (type != DType::float32 && type != DType::bfloat16) return {};
  omp_set_num_threads(threads);  // OpenMP's own threads, which wait while ours compute
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::memory::desc a({p.M, p.K}, type_of(p.a.type()), {p.a.across, p.a.along}),
      b({p.K, p.N}, type_of(p.b.type()), {p.b.along, p.b.across}), c({p.M, p.N}, type_of(p.c.type), {p.N, 1}),
      bias({1, p.N}, dnnl::memory::data_type::f32, {p.N, 1});
  dnnl::post_ops after;
  if (p.add) after.append_sum();
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  const dnnl::matmul::desc description =
      p.bias != nullptr ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul matmul(dnnl::matmul::primitive_desc(description, attributes, engine));
  const auto at = [&](const dnnl::memory::desc& what, const void* data) {
    return dnnl::memory(what, engine, const_cast<void*>(data));
  };
  std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, at(a, p.a.elements.at)},
                                                     {DNNL_ARG_WEIGHTS, at(b, p.b.elements.at)},
                                                     {DNNL_ARG_DST, at(c, p.c.at)}};
  if (p.bias != nullptr) arguments[DNNL_ARG_BIAS] = at(bias, p.bias);
  return [matmul, arguments, stream = dnnl::stream(engine)]() mutable {
    matmul.execute(stream, arguments);
    stream.wait();
  };
}

const char* describe_dnnl() {
  static const std::string words = [] {
    const auto* version = dnnl::version();
    return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
           std::to_string(version->patch) + ", with OpenMP threads of its own";
  }();
  return words.c_str();
}

}  // namespace tessera
