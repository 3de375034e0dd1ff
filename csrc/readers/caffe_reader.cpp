// SPDX-License-Identifier: Apache-2.0
// Messages of Caffe and Caffe2: `Datum`, an image and a label, and `TensorProtos`, a sequence of tensors. The last output of both says how to
// interpret the others: numbers, int64, for each sample.
#include <array>
#include <climits>
#include <cstring>

#include "ndd/error.h"
#include "ndd/python_interface.h"
#include "readers/protobuf.h"

namespace ndd {
namespace {

constexpr size_t kImageDims = 3;

// The numbers of a sample in the last output, as Python reads them: the form of the image, its number of dimensions and three extents, then the
// types of the other tensors.
using Form = std::vector<int64_t>;

std::string bytes_of(const Form& form) { return {reinterpret_cast<const char*>(form.data()), form.size() * sizeof(int64_t)}; }

// Returns whether an image of these extents, which come from the file, has so many elements.
// A product that overflows counts as the largest number, which no message has elements for.
bool has_elements(const int64_t* extents, int64_t count) {
  int64_t product = 1;
  for (size_t k = 0; k < kImageDims; ++k) {
    if (extents[k] < 0) return false;
    if (extents[k] == 0) return count == 0 && extents[(k + 1) % kImageDims] >= 0 && extents[(k + 2) % kImageDims] >= 0;
    if (__builtin_mul_overflow(product, extents[k], &product)) product = INT64_MAX;
  }
  return product == count;
}

// message Datum { 1 channels, 2 height, 3 width, 4 data, 5 label, 6 float_data, 7 encoded } (caffe.proto). float_data is not read.
class DatumRequest : public RecordRequest {
 public:
  DatumRequest(std::shared_ptr<OpenFiles> files, FileRanges ranges, bool image)
      : RecordRequest(std::move(files), std::move(ranges), 3), image_(image) {}

 protected:
  // Outputs: the image, the label (int32), the form of the image.
  void parse(RecordBytes& record, std::vector<RecordPart>& parts) const override {
    int64_t extents[kImageDims] = {};  // channels, height, width
    ByteRange data;
    std::string label;
    bool encoded = true;
    // Fields: 1 to 3 the extents, 4 the data, 5 the label, 7 whether the data are those of a file. The last one with a number counts.
    for (MessageFields field(record, {0, record.length()}); field.next();) {
      if (field.wire == MessageFields::kBytes) {
        if (field.number == 4) data = field.value;
      } else if (field.wire == MessageFields::kVarint) {
        const int32_t value = int32_of(field.scalar);
        if (field.number <= 3) extents[field.number - 1] = value;
        if (field.number == 5) label.assign(reinterpret_cast<const char*>(&value), sizeof(value));
        if (field.number == 7) encoded = field.scalar != 0;
      }
    }
    // An encoded file has one dimension, whose extent is that of the part; of pixels the height, the width and the channels follow.
    Form form{1, 0, 0, 0};
    if (image_) {
      if (!encoded) {
        form = {kImageDims, extents[1], extents[2], extents[0]};
        if (!has_elements(&form[1], data.length())) {
          fail("the image has ", data.length(), " bytes, but height, width and channels are (", form[1], ", ", form[2], ", ", form[3], ")");
        }
      }
      parts[0].add_slice(record, data.begin, data.length());
    }
    parts[1].add(std::move(label));
    parts[2].add(bytes_of(form));
  }

 private:
  const bool image_;
};

// A tensor of a TensorProtos message.
struct TensorProto {
  NDD_PLAIN_ENUM("caffe.Element", Element, int32_t, undefined, float32, int32, byte, string);  // as its field 2 numbers them
  static constexpr size_t kMaxExtents = 8;  // that are kept: an image has 3

  int32_t kind = float32;
  std::vector<int64_t> extents;
  RecordPart floats;
  std::string ints;
  ByteRange data, text;  // bytes, and the first string
  bool has_text = false;

  // Fields: 1 extents, 2 type of the elements, 3 floats, 4 int32s, 5 bytes, 6 strings. A writer may pack repeated ones or not.
  TensorProto(RecordBytes& record, ByteRange message) {
    for (MessageFields field(record, message); field.next();) {
      if (field.wire == MessageFields::kVarint) {
        // Varints are unsigned: the sign bit means a negative extent, which is rejected later.
        if (field.number == 1) add_extent(static_cast<int64_t>(field.scalar));
        if (field.number == 2) kind = int32_of(field.scalar);
        if (field.number == 4) add_int(field.scalar);
      } else if (field.number == 3 && (field.wire == MessageFields::kBytes || field.wire == MessageFields::kFixed32)) {
        if (field.value.length() % 4 != 0) fail("packed float numbers of ", field.value.length(), " bytes");
        floats.add_slice(record, field.value.begin, field.value.length());
      } else if (field.wire == MessageFields::kBytes) {
        if (field.number == 1 || field.number == 4) {
          for (MessageFields packed(record, field.value); !packed.empty();) {
            const uint64_t scalar = packed.varint();
            field.number == 1 ? add_extent(int32_of(scalar)) : add_int(scalar);
          }
        }
        if (field.number == 5) data = field.value;
        if (field.number == 6 && !has_text) {
          text = field.value;
          has_text = true;
        }
      }
    }
  }

  // A message may have any number of extents; more than an image can have are dropped.
  void add_extent(int64_t extent) {
    if (extents.size() < kMaxExtents) extents.push_back(extent < 0 ? -1 : extent);
  }

  void add_int(uint64_t scalar) {
    const int32_t value = int32_of(scalar);
    ints.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  // Returns the bytes of an image, and adds its dimensions and extents to `form`.
  ByteRange image(Form& form) const {
    if (kind == string) {
      if (!has_text) fail("the image is a string, but there is none");
      form.insert(form.end(), {1, 0, 0, 0});
      return text;
    }
    if (kind != byte) fail("an image is a string or bytes, not of data type ", kind);
    std::vector<int64_t> shape = extents;
    if (shape.size() == 2) shape.push_back(1);  // height and width of a gray image
    if (shape.size() != kImageDims || !has_elements(shape.data(), data.length())) {
      std::string listed;
      for (const int64_t extent : extents) listed += (listed.empty() ? "" : ", ") + std::to_string(extent);
      fail("the image has ", data.length(), " bytes and the extents [", listed, "]");
    }
    form.push_back(kImageDims);
    form.insert(form.end(), shape.begin(), shape.end());
    return data;
  }

  // Returns how many numbers there are. Throws Error if the elements are something else.
  int64_t count() const {
    if (kind != float32 && kind != int32) fail("numbers are float or int32, not of data type ", kind);
    return (kind == float32 ? floats.size() : static_cast<int64_t>(ints.size())) / 4;
  }

  // Moves the numbers into an output, and adds their type to `form`.
  void take_numbers(RecordPart& part, Form& form) {
    count();
    form.push_back(kind);
    if (kind == float32) {
      part = std::move(floats);
    } else {
      part.add(std::move(ints));
    }
  }
};

// What a sample consists of; the tensors come in this order.
struct TensorsWanted {
  NDD_PLAIN_ENUM("caffe.LabelType", LabelType, int64_t, single, sparse, dense, weighted, no_label);  // DALI uses the same numbers

  bool image;
  int64_t label_type, classes, additional;
  bool box;
  int64_t outputs() const { return int64_t{image} + (label_type != no_label) + (label_type == weighted) + additional + box + 1; }
};

class TensorsRequest : public RecordRequest {
 public:
  TensorsRequest(std::shared_ptr<OpenFiles> files, FileRanges ranges, TensorsWanted wanted)
      : RecordRequest(std::move(files), std::move(ranges), wanted.outputs()), wanted_(wanted) {}

 protected:
  // Outputs: the tensors; the form of the image, if there is one, and the type of each of the others. Weights of labels are an output of their own.
  void parse(RecordBytes& record, std::vector<RecordPart>& parts) const override {
    std::vector<TensorProto> tensors;
    int64_t count = 0;
    for (MessageFields field(record, {0, record.length()}); field.next();) {
      if (field.number != 1 || field.wire != MessageFields::kBytes) continue;
      TensorProto tensor(record, field.value);  // those that are not delivered are checked, too
      if (++count < wanted_.outputs()) tensors.push_back(std::move(tensor));
    }
    size_t place = 0;
    Form form;
    const auto following = [&](const auto&... what) -> TensorProto& {
      if (place == tensors.size()) fail("there are ", count, " tensors and none is left for the ", what...);
      return tensors[place++];
    };
    auto part = parts.begin();
    if (wanted_.image) {
      const ByteRange bytes = following("image").image(form);
      (part++)->add_slice(record, bytes.begin, bytes.length());
    }
    if (wanted_.label_type != TensorsWanted::no_label) {
      TensorProto& label = following("label");
      const int64_t labels = label.count();
      if (wanted_.label_type == TensorsWanted::single && labels != 1) fail("a label is one number, not ", labels, "; label_type has other kinds");
      if (wanted_.label_type == TensorsWanted::sparse || wanted_.label_type == TensorsWanted::weighted) check_classes(label);
      label.take_numbers(*part++, form);
      if (wanted_.label_type == TensorsWanted::weighted) {
        TensorProto& weights = following("weights of the labels");
        if (weights.count() != labels) fail("there are ", weights.count(), " weights for ", labels, " classes");
        weights.take_numbers(*part++, form);
      }
    }
    for (int64_t k = 0; k < wanted_.additional; ++k) following("additional input ", k).take_numbers(*part++, form);
    if (wanted_.box) {
      TensorProto& box = following("box");
      const int64_t numbers = box.count();
      if (box.kind != TensorProto::int32 || numbers != 4) fail("a box is four int32 numbers, not ", numbers, " of data type ", box.kind);
      box.take_numbers(*part++, form);
    }
    part->add(bytes_of(form));
  }

 private:
  // Class numbers index arrays, and come from the file.
  void check_classes(const TensorProto& label) const {
    if (label.kind != TensorProto::int32) fail("the numbers of classes are int32, not of data type ", label.kind);
    int32_t least = 0, greatest = 0;
    for (size_t at = 0; at < label.ints.size(); at += sizeof(int32_t)) {
      int32_t number;
      std::memcpy(&number, label.ints.data() + at, sizeof(number));
      least = std::min(least, number);
      greatest = std::max(greatest, number);
    }
    if (least < 0 || greatest >= wanted_.classes) fail("class ", least < 0 ? least : greatest, " is not among num_labels=", wanted_.classes);
  }

  const TensorsWanted wanted_;
};

}  // namespace
}  // namespace ndd

// Start to read messages, see ndd_ranges_start. The image is delivered if `image` is not 0.
NDD_EXPORT(release, void*, ndd_datums_start,
           (void* files, const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
            const int64_t* lengths, int64_t n, int image)) {
  auto request = std::make_shared<ndd::DatumRequest>(*static_cast<std::shared_ptr<ndd::OpenFiles>*>(files),
                                                     ndd::file_ranges(root, paths, offsets, numbers, begins, lengths, n), image != 0);
  ndd::start_reading(request);
  return ndd::handles<ndd::ReadRequestPtr>().make(std::move(request));
}

// The tensors of a sample: an image, a label of one of the types, with so many `classes`, `additional` ones, a box.
NDD_EXPORT(release, void*, ndd_tensors_start,
           (void* files, const char* root, const char* paths, const int64_t* offsets, const int32_t* numbers, const int64_t* begins,
            const int64_t* lengths, int64_t n, int image, int64_t label_type, int64_t classes, int64_t additional, int box)) {
  auto request = std::make_shared<ndd::TensorsRequest>(*static_cast<std::shared_ptr<ndd::OpenFiles>*>(files),
                                                       ndd::file_ranges(root, paths, offsets, numbers, begins, lengths, n),
                                                       ndd::TensorsWanted{image != 0, label_type, classes, additional, box != 0});
  ndd::start_reading(request);
  return ndd::handles<ndd::ReadRequestPtr>().make(std::move(request));
}
