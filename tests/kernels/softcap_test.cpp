#include "framework/kernels/softcap.h"

#include "framework/kernels/heads.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Doubles = std::vector<double>;

using Softcap = ForEveryIsa;
FOR_EVERY_ISA(Softcap);

TEST_P(Softcap, AndItsBackwardEqualThePlainLoop) {
  auto x = random_normal(10007, 1, 0, 40);
  for (std::size_t i = 0; i < 3000; ++i) x[i] = static_cast<float>(i) * 1e-2F - 15;  // both forms of tanh
  const auto dy = random_normal(x.size(), 2);
  for (const double cap : {30.0, 0.5}) {
    Doubles y, dx;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double share = std::tanh(x[i] / cap);
      y.push_back(cap * share);
      dx.push_back(dy[i] * (1 - share * share));
    }
    const auto got = on_any_threads([&](Threads& threads) {
      auto out = x, gradient = dy;
      softcap_forward(threads, cap, x, out);
      softcap_backward(threads, cap, dy, out, gradient);
      return joined({out, gradient});
    });
    EXPECT_CLOSE(std::span<const float>(got).first(x.size()), y, 3e-7);     // five units in the last place
    EXPECT_CLOSE(std::span<const float>(got).subspan(x.size()), dx, 1e-6);  // 1 - tanh^2 cancels near 1
  }
}

TEST(Heads, GoOutAndBackAndLeaveTheRestAlone) {
  Threads threads(2);
  const HeadsInRows e{3, 7, 2};
  const std::vector<std::int64_t> offsets = {4, 1};
  std::vector<float> x(21), dense(12);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  gather_heads(threads, e, offsets, x, dense);
  EXPECT_EQ(dense, (std::vector<float>{4, 5, 1, 2, 11, 12, 8, 9, 18, 19, 15, 16}));
  std::vector<float> back(21, -1);
  scatter_heads(threads, e, offsets, dense, back);
  EXPECT_EQ(back, (std::vector<float>{-1, 1, 2, -1, 4, 5, -1, -1, 8, 9, -1, 11, 12, -1, -1, 15, 16, -1, 18, 19, -1}));
}

}  // namespace
}  // namespace tessera::kernels
