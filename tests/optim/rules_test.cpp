// Each rule against a loop in double, written from its paper.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/optim/made.h"

namespace tessera::optim {
namespace {

constexpr std::size_t n = 3 * block_elements;
const double lr = 0.02, clip = 0.7, decay = 0.1;

TEST(AdamL2, EqualsItsFormulaInDouble) {
  const auto adam = made("adam_l2", {{"eps", "1e-6"}});
  auto memory = normal(n, 5);
  std::vector<double> p(memory.begin(), memory.end()), m(n), v(n);
  memory.resize(3 * n);
  for (int step = 1; step <= 4; ++step) {
    const auto grad = normal(n, 10 + static_cast<unsigned>(step));
    adam->update(adam->prepared(scalars_of(step, lr, clip, decay)), lay_out(*adam, memory, grad));
    for (std::size_t i = 0; i < n; ++i) {
      const double g = clip * grad[i] + decay * p[i];  // the decay is part of the gradient
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      p[i] -= lr * m[i] / (1 - std::pow(0.9, step)) / (std::sqrt(v[i] / (1 - std::pow(0.999, step))) + 1e-6);
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    EXPECT_NEAR(memory[i], p[i], 2e-6) << i;  // four roundings of values near 1, and their slots'
}

TEST(Lion, EqualsItsFormulaInDouble) {
  const auto lion = made("Lion", {{"lion_beta1", "0.8"}, {"lion_beta2", "0.95"}});
  EXPECT_EQ(lion->slots(), std::vector<std::string>{"exp_avg"});
  auto memory = normal(n, 5);
  std::vector<double> p(memory.begin(), memory.end()), m(n);
  memory.resize(2 * n);
  for (int step = 1; step <= 4; ++step) {
    auto grad = normal(n, 30 + static_cast<unsigned>(step));
    if (step == 1) grad[0] = 0;  // no direction: no move but the decay
    lion->update(lion->prepared(scalars_of(step, lr, clip, decay)), lay_out(*lion, memory, grad));
    for (std::size_t i = 0; i < n; ++i) {
      const double g = clip * grad[i], c = 0.8 * m[i] + 0.2 * g;
      p[i] -= lr * ((c > 0) - (c < 0) + decay * p[i]);
      m[i] = 0.95 * m[i] + 0.05 * g;
    }
  }
  for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(memory[i], p[i], 2e-6) << i;  // a sign that differs would be 4e-2
}

TEST(Sgd, LooksAheadWhenNesterov) {
  const auto sgd = made("sgd", {{"nesterov", "true"}});
  auto memory = normal(n, 6);
  std::vector<double> p(memory.begin(), memory.end()), u(n);
  memory.resize(2 * n);
  for (int step = 1; step <= 4; ++step) {
    const auto grad = normal(n, 20 + static_cast<unsigned>(step));
    sgd->update(sgd->prepared(scalars_of(step, lr, clip, decay)), lay_out(*sgd, memory, grad));
    for (std::size_t i = 0; i < n; ++i) {
      const double g = clip * grad[i] + decay * p[i];
      u[i] = 0.9 * u[i] + g;
      p[i] -= lr * (g + 0.9 * u[i]);
    }
  }
  for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(memory[i], p[i], 2e-6) << i;
}

/// A dense matrix in double, for the paper's loop.
struct Matrix {
  std::size_t rows, columns;
  std::vector<double> at;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), at(r * c) {}
  double& operator()(std::size_t i, std::size_t j) { return at[i * columns + j]; }
  double operator()(std::size_t i, std::size_t j) const { return at[i * columns + j]; }
  Matrix transposed() const {
    Matrix out(columns, rows);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) out(j, i) = (*this)(i, j);
    return out;
  }
  Matrix times(const Matrix& o) const {
    Matrix out(rows, o.columns);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t k = 0; k < columns; ++k)
        for (std::size_t j = 0; j < o.columns; ++j) out(i, j) += (*this)(i, k) * o(k, j);
    return out;
  }
};

/// "zeropower via Newton-Schulz" of the first paper, in its order: turn, normalise, iterate, turn back.
Matrix newton_schulz(Matrix x, int steps) {
  const bool tall = x.rows > x.columns;
  if (tall) x = x.transposed();
  double norm = 0;
  for (const auto v : x.at) norm += v * v;
  for (auto& v : x.at) v /= std::sqrt(norm) + 1e-7;
  for (int step = 0; step < steps; ++step) {
    const auto A = x.times(x.transposed()), AA = A.times(A);
    Matrix B(A.rows, A.rows);
    for (std::size_t i = 0; i < B.at.size(); ++i) B.at[i] = -4.7750 * A.at[i] + 2.0315 * AA.at[i];
    const auto Bx = B.times(x);
    for (std::size_t i = 0; i < x.at.size(); ++i) x.at[i] = 3.4445 * x.at[i] + Bx.at[i];
  }
  return tall ? x.transposed() : x;
}

struct MuonCase {
  std::size_t rows, columns;
  bool nesterov, spectral;
};
class MuonRule : public testing::TestWithParam<MuonCase> {};
INSTANTIATE_TEST_SUITE_P(Optim, MuonRule,
                         testing::Values(MuonCase{7, 13, true, false}, MuonCase{13, 7, false, true},
                                         MuonCase{16, 16, true, true}, MuonCase{70, 33, true, false}));

std::size_t padded(std::size_t count) { return (count + block_elements - 1) / block_elements * block_elements; }

std::vector<float> matrix_memory(const MuonCase& c, unsigned seed) {
  auto out = normal(c.rows * c.columns, seed);
  out.resize(padded(c.rows * c.columns));
  return out;
}

void update_whole(const Optimizer& muon, int threads, int step, std::vector<float>& memory, const MuonCase& c,
                  const std::vector<float>& grad) {
  kernels::Threads crew(threads);
  const auto scalars = muon.prepared(scalars_of(step, lr, clip, decay));
  muon.update_whole(
      crew, scalars,
      {lay_out(muon, memory, grad), static_cast<std::int64_t>(c.rows), static_cast<std::int64_t>(c.columns)});
}

std::unique_ptr<Optimizer> muon_of(const MuonCase& c) {
  return made("muon",
              {{"muon_nesterov", c.nesterov ? "true" : "false"}, {"muon_scale", c.spectral ? "spectral" : "rms"}});
}

TEST_P(MuonRule, EqualsItsPapersInDouble) {
  const auto c = GetParam();
  const auto muon = muon_of(c);
  auto memory = matrix_memory(c, 5);
  Matrix p(c.rows, c.columns), m = p;
  std::copy_n(memory.begin(), p.at.size(), p.at.begin());
  memory.resize(3 * memory.size());
  const double rows = static_cast<double>(c.rows), columns = static_cast<double>(c.columns);
  const double length =
      c.spectral ? std::sqrt(std::max(1.0, rows / columns)) : 0.2 * std::sqrt(std::max(rows, columns));
  for (int step = 1; step <= 3; ++step) {
    const auto grad = matrix_memory(c, 40 + static_cast<unsigned>(step));
    update_whole(*muon, 2, step, memory, c, grad);
    auto direction = m;
    for (std::size_t i = 0; i < p.at.size(); ++i) {
      const double g = clip * grad[i];
      m.at[i] = 0.95 * m.at[i] + g;
      direction.at[i] = c.nesterov ? g + 0.95 * m.at[i] : m.at[i];
    }
    const auto orthogonal = newton_schulz(direction, 5);
    for (std::size_t i = 0; i < p.at.size(); ++i) p.at[i] -= lr * (decay * p.at[i] + length * orthogonal.at[i]);
  }
  // The iteration multiplies a small singular value by 3.4445 five times, and its rounding with it: 500 x 6e-8 of an
  // update of lr * length.
  for (std::size_t i = 0; i < p.at.size(); ++i) EXPECT_NEAR(memory[i], p.at[i], 3e-5 * lr * length + 1e-6) << i;
  const auto count = c.rows * c.columns;
  for (std::size_t i = count; i < padded(count); ++i) EXPECT_EQ(memory[i], 0) << "padding " << i;
}

TEST_P(MuonRule, GivesTheSameBitsOnAnyNumberOfThreads) {
  const auto c = GetParam();
  const auto muon = muon_of(c);
  const auto grad = matrix_memory(c, 9);
  auto one = matrix_memory(c, 5);
  one.resize(3 * one.size());
  auto three = one;
  for (int step = 1; step <= 2; ++step) {
    update_whole(*muon, 1, step, one, c, grad);
    update_whole(*muon_of(c), 3, step, three, c, grad);  // another object: there is no state but the memory
  }
  EXPECT_EQ(one, three);
}

TEST(Muon, WantsTheMatricesInsideTheNetwork) {
  const auto muon = made("muon");
  EXPECT_TRUE(muon->wants_whole(ParameterRole::matrix));
  for (const auto role :
       {ParameterRole::word_embedding, ParameterRole::position_embedding, ParameterRole::output_layer})
    EXPECT_FALSE(muon->wants_whole(role));
  EXPECT_FALSE(made("adamw")->wants_whole(ParameterRole::matrix));
}

}  // namespace
}  // namespace tessera::optim
