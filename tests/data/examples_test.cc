// The code of docs/data_formats.md, in the order of the page; tests/project/documents_test.py compares them.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nn/data/cifar.h"
#include "nn/data/csv.h"
#include "nn/data/image_folder.h"
#include "nn/data/image_ops.h"
#include "nn/data/libsvm.h"
#include "nn/data/loader.h"
#include "nn/data/recordio.h"
#include "nn/data/stream.h"
#include "nn/data/tokenizer.h"
#include "tests/ndarray/io_temp.h"

namespace mx {
namespace {

class DataExamples : public ::testing::Test {
 protected:
  DataExamples() : before_(std::filesystem::current_path()) { std::filesystem::current_path(folder_.path()); }
  ~DataExamples() override { std::filesystem::current_path(before_); }

  static data::HostArray image(int64_t height, int64_t width) {
    return data::HostArray({height, width, 3}, u8);
  }

  test::TempFolder folder_;
  std::filesystem::path before_;
};

TEST_F(DataExamples, Tables) {
  test::spill("houses.csv", "area,rooms,city,price\n80.5,3,Bonn,250\n,4,Kiel,310\nbroken\n");
  test::spill("a9a.txt", "+1 3:1 11:1\n-1 5:1 7:0.5\n");
  std::vector<std::string> errors;

  data::CsvTable table = data::read_csv(
      "houses.csv",
      {.bad = data::BadSamples::skip, .on_skip = [&](const std::string& error) { errors.push_back(error); }});
  NDArray x = table.matrix({"area", "rooms"});
  data::CsvTable::Codes city = table.codes("city");
  data::ArrayDataset houses({x, city.array, table["price"]}, {"x", "city", "price"});

  EXPECT_EQ(2, houses.size());
  EXPECT_EQ(1u, errors.size());

  data::SparseTable sparse = data::read_libsvm("a9a.txt");
  data::ArrayDataset dense({sparse.dense(), sparse.labels});
  data::SampleDataset rows(data::sparse_source(sparse), {.collate = data::join()});

  EXPECT_EQ((Shape{2, 11}), dense.array(0).shape());
  EXPECT_EQ(2, rows.size());
}

TEST_F(DataExamples, Images) {
  for (const std::string name : {"photos", "photos/cat", "photos/dog"})
    std::filesystem::create_directory(name);
  data::write_image("photos/cat/1.jpg", image(40, 50));
  data::write_image("photos/dog/1.png", image(33, 70));

  data::SampleTransform augment = data::chain(
      {data::random_resized_crop(32, 32), data::flip(0.5),
       data::colour_jitter({.brightness = 0.4, .contrast = 0.4}),
       data::normalise_image({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}), data::channels_first()});
  data::SampleDataset photos(data::cached(data::image_folder("photos"), 1 << 30),
                             {.transform = augment, .bad = data::BadSamples::skip});
  data::Loader loader(photos, {.batch_size = 64, .shuffle = true, .seed = 1});
  for (data::Batch& batch : loader) {
    NDArray images = batch["image"], labels = batch["label"];
    EXPECT_EQ((Shape{2, 3, 32, 32}), images.shape());
    EXPECT_EQ((Shape{2}), labels.shape());
  }
}

TEST_F(DataExamples, Records) {
  const std::string jpeg = data::encode_jpeg(image(20, 20));

  data::RecordWriter writer("train.rec", "train.idx");
  writer.write(data::pack_record({.label = {3}, .id = 7}, jpeg));
  writer.commit();
  data::SampleDataset records(data::image_records("train.rec", "train.idx"),
                              {.transform = data::resize(64, 64)});

  EXPECT_EQ((Shape{1, 64, 64, 3}), records.gather(data::Indices({0}))[0].shape());
}

TEST_F(DataExamples, Text) {
  test::spill("vocab.json", R"({"H":0,"i":1,"Hi":2,"<|endoftext|>":3})");
  test::spill("merges.txt", "#version: 0.2\nH i\n");
  test::spill("corpus.txt", "HiHiHi\nHi\n");

  auto gpt2 = data::BytePairTokenizer::load("vocab.json", "merges.txt");
  std::vector<int64_t> ids = gpt2.encode("HiHiHi<|endoftext|>", {"<|endoftext|>"});
  data::ArrayDataset windows = data::text_windows(array(ids), 2);

  EXPECT_EQ((std::vector<int64_t>{2, 2, 2, 3}), ids);
  EXPECT_EQ(1, windows.size());

  data::StreamLoader lines(data::text_lines("corpus.txt"),
                           {.batch_size = 32,
                            .shuffle_buffer = 10000,
                            .transform =
                                [&](data::Sample& sample, data::SampleRandom&) {
                                  const auto* text = reinterpret_cast<const char*>(sample[0].raw());
                                  sample[0] = data::host_array(gpt2.encode({text, sample[0].bytes()}));
                                },
                            .collate = data::pad({.value = -1, .lengths = true})});
  for (data::Batch& batch : lines) EXPECT_EQ((Shape{2, 3}), batch["text"].shape());
}

TEST_F(DataExamples, Samplers) {
  const data::ArrayDataset set({arange(6)});
  const std::vector<double> weights = {1, 1, 1, 1, 1, 5};

  data::Loader balanced(set, {.batch_size = 2, .sampler = data::weighted_sampler(weights, 100)});
  std::vector<int64_t> lengths = {5, 3, 9, 3, 4, 8};
  data::Loader similar(set,
                       {.batches = data::length_batches(lengths, {.max_elements = 16, .shuffle = true})});

  EXPECT_EQ(50, balanced.batches());
  EXPECT_EQ(6, similar.samples());
}

}  // namespace
}  // namespace mx
