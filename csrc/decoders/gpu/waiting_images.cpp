// SPDX-License-Identifier: Apache-2.0
#include "decoders/gpu/waiting_images.h"

#include "ndd/python_interface.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace ndd {

namespace {

// Images that a thread takes from a long batch: one call of the codec for several costs less. Near the end threads take single ones.
constexpr int64_t kMaxTogether = 4;

}  // namespace

WaitingBatch::WaitingBatch(int64_t images, const std::vector<int64_t>& reserved, bool is_fixed)
    : reserved_(reserved.begin(), reserved.end()), is_fixed_(is_fixed) {
  std::vector<char> is_reserved(static_cast<size_t>(images), 0);
  for (const int64_t i : reserved) is_reserved[static_cast<size_t>(i)] = 1;
  for (int64_t i = 0; i < images; ++i) {
    if (!is_reserved[static_cast<size_t>(i)]) shared_.push_back(i);
  }
}

void ImageQueue::add(WaitingBatch& batch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  batches_.push_back(&batch);
  ++arrivals_;
  arrived_.notify_all();
}

void ImageQueue::remove(WaitingBatch& batch) {
  std::unique_lock<std::mutex> lock(mutex_);
  batches_.remove(&batch);
  reported_.wait(lock, [&] { return batch.preparing_ == 0; });
}

int64_t ImageQueue::take_from(std::deque<int64_t>& images, int64_t count, bool from_end, std::vector<int64_t>& taken) {
  count = std::min(count, static_cast<int64_t>(images.size()));
  const auto begin = from_end ? images.end() - count : images.begin();
  taken.assign(begin, begin + count);
  images.erase(begin, begin + count);
  return count;
}

void ImageQueue::close_if_empty(WaitingBatch& batch) {
  if (!batch.shared_.empty() || !batch.reserved_.empty()) return;
  const auto found = std::find(batches_.begin(), batches_.end(), &batch);
  if (found == batches_.end()) return;
  batches_.erase(found);
  // The count of an engine that gets no images would never change. It is lowered, so that the engine is tried again.
  if (batch.declined_ && !batch.got_engine_) per_group_ = per_group_ * 3 / 4;
}

ImageQueue::Group ImageQueue::take_group(int64_t size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // The first batch of which the engine ends a group before the threads, which take images in order, come to it. If there is none, the last of several
  // batches: the threads have another one to go on with. Of a single batch the threads decode the rest sooner.
  const int64_t meanwhile = per_group_ * (groups_ + 1);
  int64_t before = 0, waiting = 0;
  WaitingBatch *chosen = nullptr, *last = nullptr;
  for (WaitingBatch* batch : batches_) {
    const auto left = static_cast<int64_t>(batch->shared_.size());
    waiting += left > 0;
    if (!batch->reserved_.empty()) {
      chosen = batch;
      break;
    }
    if (!batch->is_fixed_ && !batch->engine_refuses_ && left >= size) {
      last = batch;
      if (before + left - size >= meanwhile) {
        chosen = batch;
        break;
      }
    }
    before += left;
  }
  if (!chosen && waiting > 1) chosen = last;
  if (!chosen) {
    if (last) last->declined_ = true;
    return {};
  }
  Group group{chosen, {}};
  take_from(chosen->reserved_.empty() ? chosen->shared_ : chosen->reserved_, size, true, group.images);
  chosen->got_engine_ = true;
  group_size_ = size;
  ++chosen->preparing_;
  if (groups_++ == 0) at_group_ = by_threads_;
  close_if_empty(*chosen);
  return group;
}

void ImageQueue::report_group(const Group& group, const std::vector<int64_t>& refused) {
  const std::lock_guard<std::mutex> lock(mutex_);
  WaitingBatch& batch = *group.batch;
  batch.refused_.insert(batch.refused_.end(), refused.begin(), refused.end());
  if (refused.size() == group.images.size()) {
    // Probably all files of the batch are of that kind.
    batch.engine_refuses_ = true;
    batch.shared_.insert(batch.shared_.end(), batch.reserved_.begin(), batch.reserved_.end());
    batch.reserved_.clear();
    --groups_;
    group_size_ = 0;
  }
  --batch.preparing_;
  reported_.notify_all();
}

void ImageQueue::end_group() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --groups_;
  per_group_ = by_threads_ - at_group_;
  at_group_ = by_threads_;
}

int64_t ImageQueue::arrivals() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return arrivals_;
}

void ImageQueue::wait_for_arrival(int64_t arrivals) {
  std::unique_lock<std::mutex> lock(mutex_);
  arrived_.wait(lock, [&] { return arrivals_ != arrivals; });
}

std::vector<int64_t> ImageQueue::take_for_thread(WaitingBatch& batch, int threads, bool is_last) {
  std::unique_lock<std::mutex> lock(mutex_);
  std::vector<int64_t> taken;
  const auto has_images = [&] { return !batch.refused_.empty() || !batch.shared_.empty(); };
  if (is_last) reported_.wait(lock, [&] { return has_images() || (batch.preparing_ == 0 && batch.reserved_.empty()); });
  if (!batch.refused_.empty()) {
    take_from(batch.refused_, 1, false, taken);
  } else {
    // A fair share of those that the threads will probably take.
    auto left = static_cast<int64_t>(batch.shared_.size());
    if (group_size_ > 0 && !batch.is_fixed_ && !batch.engine_refuses_) left = left * per_group_ / (per_group_ + group_size_);
    const int64_t count = std::clamp<int64_t>(left / (2 * std::max(threads, 1)), 1, kMaxTogether);
    by_threads_ += take_from(batch.shared_, count, false, taken);
  }
  close_if_empty(batch);
  return taken;
}

}  // namespace ndd

// For a test, which simulates decoders of given speeds.
NDD_EXPORT(keep, void*, ndd_image_queue, ()) { return new ndd::ImageQueue; }
NDD_EXPORT(keep, void, ndd_image_queue_release, (void* queue)) { delete static_cast<ndd::ImageQueue*>(queue); }
NDD_EXPORT(keep, void*, ndd_waiting_batch, (void* queue, int64_t images, const int64_t* reserved, int64_t reserved_count, int is_fixed)) {
  const std::vector<int64_t> of_engine(reserved, reserved + reserved_count);
  auto* batch = new ndd::WaitingBatch(images, of_engine, is_fixed != 0);
  static_cast<ndd::ImageQueue*>(queue)->add(*batch);
  return batch;
}
NDD_EXPORT(keep, void, ndd_waiting_batch_release, (void* queue, void* batch)) {
  static_cast<ndd::ImageQueue*>(queue)->remove(*static_cast<ndd::WaitingBatch*>(batch));
  delete static_cast<ndd::WaitingBatch*>(batch);
}
// These fill `taken` and return its length.
NDD_EXPORT(keep, int64_t, ndd_take_for_thread, (void* queue, void* batch, int threads, int64_t* taken)) {
  const auto images = static_cast<ndd::ImageQueue*>(queue)->take_for_thread(*static_cast<ndd::WaitingBatch*>(batch), threads, false);
  std::copy(images.begin(), images.end(), taken);
  return static_cast<int64_t>(images.size());
}
NDD_EXPORT(keep, int64_t, ndd_take_group, (void* queue, int64_t size, void** batch, int64_t* taken)) {
  const auto group = static_cast<ndd::ImageQueue*>(queue)->take_group(size);
  *batch = group.batch;
  std::copy(group.images.begin(), group.images.end(), taken);
  return static_cast<int64_t>(group.images.size());
}
NDD_EXPORT(keep, void, ndd_report_group, (void* queue, void* batch, const int64_t* images, int64_t count, const int64_t* refused, int64_t refusals)) {
  static_cast<ndd::ImageQueue*>(queue)->report_group({static_cast<ndd::WaitingBatch*>(batch), {images, images + count}},
                                                     {refused, refused + refusals});
}
NDD_EXPORT(keep, void, ndd_end_group, (void* queue)) { static_cast<ndd::ImageQueue*>(queue)->end_group(); }
