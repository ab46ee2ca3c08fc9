// What a crash of the machine, at any moment of a save, leaves on the disk.
#include <gtest/gtest.h>

#include "framework/interop/hugging_face/hugging_face_export.h"
#include "tests/names_given.h"
#include "tests/own_folder.h"

namespace tessera {
namespace {

class ExportCrashTest : public InOwnFolder {};

TEST_F(ExportCrashTest, AnExportForTransformersIsStoredBeforeItHasItsName) {
  const options::Mappings mappings;
  const hugging_face::HuggingFaceModel model(TESTS_DATA "/models/gpt2/hf", mappings);
  hugging_face::HuggingFaceExport how;
  how.family = model.family();
  how.files = {{"config.json", "{}"}};
  how.shard_bytes = 20'000;  // several files
  const auto given =
      names_given([&] { hugging_face::write_hugging_face("models/out", model.model_config(), model, how, mappings); });
  ASSERT_GT(given.size(), 3U);
  EXPECT_EQ(given.back(), "out");
}

}  // namespace
}  // namespace tessera
