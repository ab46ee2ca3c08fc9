#include "framework/gpt/npy_header.h"

#include "framework/gpt/index_array.h"
#include "tests/chosen.h"
#include "tests/own_folder.h"

namespace tessera::gpt {
namespace {

/// A .npy file with this dictionary, in the given version of the format.
std::string npy(const std::string& words, int version = 1) {
  std::string out(npy_magic);
  out += {static_cast<char>(version), '\0'};
  const auto length = static_cast<std::uint32_t>(words.size());
  return out.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4) + words;
}

NpyHeader parsed(const std::string& file) {
  return parse_npy_header(std::as_bytes(std::span(file.data(), file.size())));
}

TEST(NpyHeader, IsAPythonDictionaryInAnyOrderAndSpelling) {
  for (const int version : {1, 2, 3})
    for (const auto* words : {"{'descr': '<i8', 'fortran_order': False, 'shape': (20000, 2), }",
                              "{'shape':(20000,2),'fortran_order':False,'descr':'<i8'}  \n",
                              "{ \"descr\" : \"<i8\" , 'fortran_order' : False,\t'shape' : ( 20000L , 2L , ) }"}) {
      const auto header = parsed(npy(words, version));
      EXPECT_EQ(header.type, "<i8");
      EXPECT_FALSE(header.fortran_order);
      EXPECT_EQ(header.shape, (std::vector<std::int64_t>{20000, 2}));
      EXPECT_EQ(header.values_at, std::string(words).size() + (version == 1 ? 10 : 12));
    }
  EXPECT_TRUE(parsed(npy("{'descr': '<i8', 'fortran_order': True, 'shape': ()}")).shape.empty());
  EXPECT_EQ(parsed(npy("{'descr': '<i8', 'fortran_order': True, 'shape': (5,)}")).shape.size(), 1U);
}

TEST(NpyHeader, OfAnythingElseIsRefusedWhateverItsLength) {
  const std::string good = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}";
  const auto refused = [](const std::string& file, const std::string& says) {
    expect_refused([&] { parsed(file); }, {says});
  };
  for (std::size_t size = 0; size < npy(good).size(); ++size) refused(npy(good).substr(0, size), "cut short");
  for (std::size_t size = 0; size < good.size(); ++size) refused(npy(good.substr(0, size)), "expected a dictionary");
  refused(npy(good, 4), "version 4.0");
  refused(npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,)}"), "records");
  for (const auto* shape : {"(5)", "(-5,)", "(5,,)", "(,)", "5", "(99999999999999999999,)", "('5',)", "(5, 5"})
    refused(npy(text("{'descr': '<i8', 'fortran_order': False, 'shape': ", shape, "}")), "expected a dictionary");
  for (const auto* words : {"{}", "{'descr': '<i8'}", "{'descr': '<i8', 'descr': '<i8', 'fortran_order': False}",
                            "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), 'x': 1}",
                            "{'descr': '<i8', 'fortran_order': false, 'shape': (2,)}",
                            "{'descr': '<i8' 'fortran_order': False 'shape': (2,)}",
                            "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)} x"})
    refused(npy(words), "expected a dictionary");
  // Long ones: in time that grows with the length, and without recursion.
  refused(npy("{'descr': '" + std::string(60000, 'x')), "expected a dictionary");
  refused(npy("{'shape': (" + std::string(60000, '(')), "expected a dictionary");
  std::string extents;
  for (int i = 0; i < 20000; ++i) extents += "1, ";
  refused(npy("{'shape': (" + extents + ")"), "expected a dictionary");
  refused(npy(good + std::string(70000, ' '), 2), "70");
}

class NpyFile : public InOwnFolder {
 protected:
  static void refused(const std::string& bytes, const std::vector<std::string>& says) {
    write("a.npy", bytes);
    expect_refused([] { IndexArray::map("a.npy"); }, says);
  }
};

TEST_F(NpyFile, WithALongHeaderIsRefusedWithItsName) {
  const auto header = "{'descr': '" + std::string(60000, 'x') + "', 'fortran_order': False, 'shape': (1,), }";
  refused(npy(header) + std::string(4, '\0'), {"a.npy: holds values of type 'xxx", "expected <i2, <i4, <u4 or <i8"});
}

TEST_F(NpyFile, MustHaveTheValuesOfItsShape) {
  const auto of = [](const std::string& order, const std::string& shape) {
    auto words = text("{'descr': '<i8', 'fortran_order': ", order, ", 'shape': ", shape, "}");
    words.resize(118, ' ');
    return npy(words);
  };
  write("a.npy", of("False", "(2, 1)") + std::string(16, '\1'));
  EXPECT_EQ(IndexArray::map("a.npy")[1], 0x0101010101010101);
  refused(of("False", "(2, 1)") + std::string(15, '\1'), {"a.npy", "15 bytes of values", "(2, 1)"});
  refused(of("True", "(2, 1)") + std::string(16, '\1'), {"a.npy", "Fortran order"});
  refused(of("False", "()") + std::string(8, '\1'), {"a.npy", "shape ()", "at least one dimension"});
  refused(of("False", "(4294967296, 4294967296)") + std::string(8, '\1'), {"a.npy", "too large"});
}

}  // namespace
}  // namespace tessera::gpt
