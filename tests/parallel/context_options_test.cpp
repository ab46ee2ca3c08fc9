#include "framework/parallel/context_options.h"

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

using Sizes = std::vector<std::int64_t>;

ParallelOptions options(std::int64_t ranks, std::vector<ContextExchange> exchanges = {}) {
  ParallelOptions o;
  o.context_parallel_size = ranks;
  o.cp_comm_type.layers = std::move(exchanges);
  return o;
}

CutExtents extents(std::int64_t seq_length = 64, std::int64_t heads = 8, std::int64_t groups = 8) {
  return {.heads = {{heads, groups}}, .vocabulary = 128, .seq_length = seq_length};
}

/// The only mistake, "option: message; advice"; or how many there are.
std::string mistake(const ParallelOptions& o, const CutExtents& e = extents(), std::int64_t layers = 4) {
  const auto all = mistakes_of_context(o, e, layers);
  if (all.size() != 1) return text(all.size(), " mistakes", all.empty() ? "" : ", " + options::sentence_of(all[0]));
  return text(all[0].option, ": ", all[0].message, "; ", all[0].advice);
}

constexpr auto none = "0 mistakes";

TEST(ContextOptions, MindSpeedsWordsSayTheSame) {
  auto o = options(4);
  EXPECT_EQ(context_layout(o, 1).of(0), ContextExchange::p2p);
  o.context_parallel_algo = ContextAlgorithm::ulysses_cp_algo;
  EXPECT_EQ(context_layout(o, 1).of(3), ContextExchange::a2a);
  EXPECT_TRUE(context_layout(o, 1).rank.contiguous);
  o.context_parallel_algo = ContextAlgorithm::kvallgather_cp_algo;
  EXPECT_EQ(context_layout(o, 1).of(3), ContextExchange::all_gather);
  o.context_parallel_algo = ContextAlgorithm::hybrid_cp_algo;
  for (const auto& [degree, meant] :
       {std::pair{1, ContextExchange::p2p}, {2, ContextExchange::a2a_p2p}, {4, ContextExchange::a2a}}) {
    o.ulysses_degree_in_cp = degree;
    EXPECT_EQ(context_layout(o, 1).of(0), meant);
    EXPECT_EQ(context_heads(o), meant == ContextExchange::a2a_p2p ? degree : 1);
    EXPECT_EQ(mistake(o), none);
  }
  o.hierarchical_context_parallel_sizes = Sizes{4, 1};
  EXPECT_EQ(mistake(o), none);
  o.ulysses_degree_in_cp = 2;
  EXPECT_EQ(
      mistake(o),
      "parallel_config.ulysses_degree_in_cp: ulysses_degree_in_cp is 2, but hierarchical_context_parallel_sizes begins "
      "with 4; leave one of the two out");
  o = options(4, {ContextExchange::a2a});
  o.context_parallel_algo = ContextAlgorithm::megatron_cp_algo;
  EXPECT_EQ(mistake(o),
            "parallel_config.context_parallel_algo: context_parallel_algo megatron_cp_algo is cp_comm_type p2p, but "
            "cp_comm_type is a2a; leave one of the two out");
}

TEST(ContextOptions, ASequenceIsCutInTwoChunksARankOrInOne) {
  EXPECT_EQ(mistake(options(4), extents(72)), none);
  EXPECT_EQ(mistake(options(4), extents(68)),
            "model_config.seq_length: seq_length 68 is not divisible by 2 x context_parallel_size 4; give 64 or 72");
  EXPECT_EQ(mistake(options(4, {ContextExchange::a2a}), extents(68)), none);
  EXPECT_EQ(mistake(options(4, {ContextExchange::a2a}), extents(3)),
            "model_config.seq_length: seq_length 3 is not divisible by context_parallel_size 4; give 4");
  auto o = options(2);
  o.tensor_model_parallel_size = 8;
  EXPECT_EQ(mistake(o, extents(20)), none);
  o.sequence_parallel = true;
  EXPECT_EQ(
      mistake(o, extents(20)),
      "model_config.seq_length: seq_length 20 is not divisible by context_parallel_size 2 x tensor_model_parallel_size "
      "8 (sequence_parallel); give 16 or 32");
}

TEST(ContextOptions, HeadsAreDividedWhereTheyAreExchanged) {
  EXPECT_EQ(mistake(options(4), extents(64, 6, 6)), none);
  EXPECT_EQ(mistake(options(4, {ContextExchange::a2a}), extents(64, 6, 6)),
            "parallel_config.context_parallel_size: cp_comm_type a2a divides 6 query heads (num_attention_heads 6 / "
            "tensor_model_parallel_size 1) among 4 ranks, which does not divide them; heads can be divided among 1, 2, "
            "3 or 6 "
            "ranks; or give cp_comm_type p2p or all_gather, which divide no heads");
  EXPECT_EQ(mistake(options(4, {ContextExchange::a2a}), extents(64, 8, 1)), none) << "copies of the only key head";
  EXPECT_EQ(
      mistake(options(4, {ContextExchange::a2a}), extents(64, 12, 6)),
      "parallel_config.context_parallel_size: cp_comm_type a2a divides 6 key and value heads (num_query_groups 6 / "
      "tensor_model_parallel_size 1) among 4 ranks, which neither divides them nor is a multiple; heads can be divided "
      "among 1, 2, 3, 6 or 12 ranks; or give cp_comm_type p2p or all_gather, which divide no heads");
  auto o = options(4, {ContextExchange::a2a_p2p});
  o.hierarchical_context_parallel_sizes = Sizes{2, 2};
  EXPECT_EQ(mistake(o, extents(64, 6, 6)), none);
  o.tensor_model_parallel_size = 2;
  EXPECT_EQ(
      mistake(o, extents(64, 6, 6)),
      "parallel_config.hierarchical_context_parallel_sizes: cp_comm_type a2a+p2p divides 3 query heads "
      "(num_attention_heads 6 / tensor_model_parallel_size 2) among 2 ranks, which does not divide them; heads can be "
      "divided among 1 or 3 ranks; or give cp_comm_type p2p or all_gather, which divide no heads");
}

TEST(ContextOptions, ListsAndLevelsFitLayersAndRanks) {
  const auto p2p = ContextExchange::p2p, a2a = ContextExchange::a2a, hybrid = ContextExchange::a2a_p2p;
  EXPECT_EQ(mistake(options(4, {p2p, a2a, p2p, a2a})), none);
  EXPECT_FALSE(context_layout(options(4, {p2p, a2a, p2p, a2a}), 0).rank.contiguous);
  EXPECT_EQ(context_layout(options(4, {p2p, a2a, p2p, a2a}), 0).of(3), a2a);
  EXPECT_EQ(mistake(options(4, {p2p, a2a})),
            "parallel_config.cp_comm_type: cp_comm_type has 2 words, but num_layers is 4; give one word for all "
            "layers, or one "
            "for each");
  EXPECT_EQ(mistake(options(1, {p2p, a2a})), none) << "no rank shares a sequence";
  auto o = options(8, {hybrid});
  EXPECT_EQ(
      mistake(o),
      "parallel_config.hierarchical_context_parallel_sizes: cp_comm_type a2a+p2p (hybrid_cp_algo) needs the sizes of "
      "its "
      "two levels, of together 8 ranks; give two sizes whose product is 8, such as [2, 4], or ulysses_degree_in_cp");
  o.hierarchical_context_parallel_sizes = Sizes{2, 2};
  EXPECT_EQ(mistake(o),
            "parallel_config.hierarchical_context_parallel_sizes: the product of hierarchical_context_parallel_sizes "
            "[2, 2] is "
            "not context_parallel_size 8; give two sizes whose product is 8, such as [2, 4]");
  o.hierarchical_context_parallel_sizes = Sizes{2, 2, 2};
  EXPECT_EQ(mistake(o),
            "parallel_config.hierarchical_context_parallel_sizes: hierarchical_context_parallel_sizes has 3 sizes, but "
            "cp_comm_type a2a+p2p has two levels; give two sizes whose product is 8, such as [2, 4]");
  o.hierarchical_context_parallel_sizes.reset();
  o.ulysses_degree_in_cp = 3;
  EXPECT_EQ(mistake(o),
            "parallel_config.ulysses_degree_in_cp: ulysses_degree_in_cp 3 does not divide context_parallel_size 8; "
            "give 1, 2, 4 "
            "or 8");
}

}  // namespace
}  // namespace tessera::parallel
