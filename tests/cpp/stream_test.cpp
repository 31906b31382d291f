// Coroutine generators over one request each: turns, early ends, failures.
#include <gtest/gtest.h>

#include "demo.hpp"

#ifdef NVLLM_CPP_COROUTINES
#include <span>

namespace {

constexpr char primes[] = "Prime numbers within 10: 2, 3, 5, 7.";

std::string primes_prompt(const nvllm::engine& engine) {
  return engine.apply_chat_template({{"user", "list all prime numbers within 10"}});
}

nvllm::request_options endless() { return {.max_tokens = 400, .ignore_eos = true}; }

TEST(Stream, AnOutputThatAStreamPolledForAnotherReaderEndsAWait) {
  nvllm::engine engine(demo_options());
  uint64_t other = engine.add_tokens({5, 6, 7}, greedy(1));
  // The library has nothing left of it, for the stream has polled all.
  for (const nvllm::output& output : engine.stream("one", greedy(3))) EXPECT_NE(output.request_id(), other);
  EXPECT_TRUE(engine.wait());
  std::optional<nvllm::output> polled = engine.poll();
  ASSERT_TRUE(polled);
  EXPECT_EQ(polled->request_id(), other);
  EXPECT_FALSE(engine.wait(std::chrono::microseconds(0)));
}

TEST(Stream, YieldsAnAnswerAsItGrows) {
  nvllm::engine engine(demo_options());
  std::string text;
  size_t pieces = 0;
  for (const nvllm::output& news : engine.stream(primes_prompt(engine), {.max_tokens = 64})) {
    std::span<const uint32_t> tokens = news.token_ids();
    EXPECT_LE(tokens.size(), 2u);
    text += news.text();
    pieces++;
  }
  EXPECT_EQ(text, primes);
  EXPECT_GT(pieces, 5u);
  EXPECT_TRUE(engine.is_finished());
}

TEST(Stream, SeveralTakeTurnsInOneBatch) {
  nvllm::engine engine(demo_options());
  std::string prompt = primes_prompt(engine);
  std::vector<nvllm::generator<nvllm::output>> streams;
  for (int i = 0; i < 3; i++) streams.push_back(engine.stream(prompt, {.max_tokens = 64}));
  uint64_t plain = engine.add(prompt, greedy(64));
  std::string texts[3];
  bool any = true;
  while (any) {
    any = false;
    for (int i = 0; i < 3; i++) {
      if (const nvllm::output* news = streams[i].next()) {
        texts[i] += news->text();
        any = true;
      }
    }
  }
  for (const std::string& text : texts) EXPECT_EQ(text, primes);
  EXPECT_FALSE(engine.is_finished()) << "the outputs of the plain request wait";
  std::string text;
  for (const nvllm::output& news : engine.outputs()) {
    EXPECT_EQ(news.request_id(), plain);
    text += news.text();
  }
  EXPECT_EQ(text, primes);
  EXPECT_TRUE(engine.is_finished());
  EXPECT_LT(engine.stats().steps, 30u) << "they ran one after the other and not as a batch";
}

TEST(Stream, PollLeavesItsOutputsAlone) {
  nvllm::engine engine(demo_options());
  auto stream = engine.stream(primes_prompt(engine), {.max_tokens = 64});
  for (int i = 0; i < 4; i++) engine.step();
  EXPECT_FALSE(engine.poll());
  std::string text;
  for (const nvllm::output& news : stream) text += news.text();
  EXPECT_EQ(text, primes);
}

TEST(Stream, DroppedEarlyCancelsItsRequest) {
  nvllm::engine engine(demo_options());
  {
    auto stream = engine.stream("hello", endless());
    ASSERT_NE(stream.next(), nullptr);
    auto never_begun = engine.stream("hello", endless());
  }
  for (int i = 0; i < 5 && !engine.is_finished(); i++) {
    engine.step();
    EXPECT_FALSE(engine.poll()) << "nobody asked for the end of a dropped stream";
  }
  EXPECT_TRUE(engine.is_finished());
  EXPECT_EQ(engine.stats().running, 0u);
}

TEST(Stream, DroppedWhileItsEndWaitsLeavesNothingBehind) {
  nvllm::engine engine(demo_options());
  {
    auto stream = engine.stream("hello", {.max_tokens = 1});
    engine.step();
  }
  EXPECT_FALSE(engine.poll());
  EXPECT_TRUE(engine.is_finished());
}

TEST(Stream, DroppedEarlyLeavesALoopThatOnlySteps) {
  nvllm::engine engine(demo_options());
  uint64_t plain = engine.add(primes_prompt(engine), greedy(64));
  for (int i = 0; i < 3; i++) {
    auto stream = engine.stream("hello", {.max_tokens = 400, .ignore_eos = true, .n = 2});
    ASSERT_NE(stream.next(), nullptr);
  }
  auto read = engine.stream(primes_prompt(engine), {.max_tokens = 64});
  nvllm_step_result done = {};
  for (int i = 0; i < 100 && (i == 0 || done.num_running > 0); i++) done = engine.step();
  size_t outputs = 0;
  std::string texts[2];
  for (const nvllm::output& news : engine.outputs()) {
    EXPECT_EQ(news.request_id(), plain);
    texts[0] += news.text();
    outputs++;
  }
  EXPECT_EQ(texts[0], primes);
  for (const nvllm::output& news : read) texts[1] += news.text();
  EXPECT_EQ(texts[1], primes);
  EXPECT_GT(outputs, 5u);
  EXPECT_TRUE(engine.is_finished());

  {
    ASSERT_NE(engine.stream("hello", endless()).next(), nullptr);
  }
  int steps = 0;
  while (!engine.is_finished() && steps < 100) {
    EXPECT_EQ(engine.step().num_outputs, 0u);
    steps++;
  }
  EXPECT_LT(steps, 100) << "a cancelled output waits for nobody";
}

TEST(Stream, DroppedEarlyIsUnheardByACallback) {
  nvllm::engine engine(demo_options());
  {
    ASSERT_NE(engine.stream("hello", endless()).next(), nullptr);
  }
  int heard = 0;
  engine.set_output_callback([&](const nvllm::output&) { return ++heard > 0; });
  for (int i = 0; i < 100 && !engine.is_finished(); i++) engine.step();
  EXPECT_TRUE(engine.is_finished());
  EXPECT_EQ(heard, 0);
}

TEST(Stream, RefusesACallbackWhileItIsRead) {
  nvllm::engine engine(demo_options());
  auto stream = engine.stream(primes_prompt(engine), {.max_tokens = 64});
  std::string text(stream.next()->text());
  try {
    engine.set_output_callback([](const nvllm::output&) { return true; });
    FAIL() << "the stream would wait forever";
  } catch (const nvllm::error& error) {
    EXPECT_EQ(error.status(), NVLLM_ERR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("stream"), std::string::npos) << error.what();
  }
  engine.set_output_callback({});
  while (const nvllm::output* news = stream.next()) text += news->text();
  EXPECT_EQ(text, primes);
  engine.set_output_callback([](const nvllm::output&) { return true; });
}

TEST(Stream, BeginsInsideNoOtherCall) {
  nvllm::engine engine(demo_options());
  int busy = 0;
  engine.generate({"hello"}, greedy(2), [&](const nvllm_progress&) {
    try {
      static_cast<void>(engine.stream("hello"));
    } catch (const nvllm::error& error) {
      busy += error.status() == NVLLM_ERR_BUSY;
    }
    return true;
  });
  EXPECT_GT(busy, 0);
  EXPECT_TRUE(engine.is_finished());
}

TEST(Stream, EndsWhenItsOutputsWereTakenElsewhere) {
  nvllm::engine engine(demo_options());
  auto stream = engine.stream("hello", {.max_tokens = 2});
  nvllm_output stolen = {};
  for (int i = 0; i < 4; i++) {
    engine.step();
    stolen.struct_size = sizeof stolen;
    while (nvllm_poll_output(engine.native(), &stolen, nullptr) == NVLLM_OK) continue;
  }
  EXPECT_THROW(stream.next(), nvllm::error);
}

TEST(Stream, ARefusedPromptThrowsAtOnceAndTheNextOneWorks) {
  nvllm::engine engine(demo_options());
  EXPECT_THROW(static_cast<void>(engine.stream("")), nvllm::error);
  engine.set_output_callback([](const nvllm::output&) { return true; });
  EXPECT_THROW(static_cast<void>(engine.stream("hello")), nvllm::error) << "a callback takes its outputs";
  engine.set_output_callback({});
  while (!engine.is_finished()) {
    engine.step();
    EXPECT_FALSE(engine.poll()) << "the refused stream has no outputs for anyone";
  }
  std::string text;
  for (const nvllm::output& news : engine.stream(primes_prompt(engine), {.max_tokens = 64})) text += news.text();
  EXPECT_EQ(text, primes);
}

TEST(Stream, OutlivesItsEngineAsAFailure) {
  std::optional<nvllm::engine> engine(demo_options());
  auto stream = engine->stream("hello", endless());
  ASSERT_NE(stream.next(), nullptr);
  engine.reset();
  EXPECT_THROW(stream.next(), nvllm::error);
}

TEST(Stream, MovesWithItsEngine) {
  nvllm::engine engine(demo_options());
  auto stream = engine.stream(primes_prompt(engine), {.max_tokens = 64});
  stream.next();
  nvllm::engine moved(std::move(engine));
  size_t rest = 0;
  while (stream.next() != nullptr) rest++;
  EXPECT_GT(rest, 5u);
}

}  // namespace
#endif
