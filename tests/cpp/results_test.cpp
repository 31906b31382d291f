// nanovllm.hpp without exceptions, in one program with units that have them.
#define NVLLM_CPP_NO_EXCEPTIONS
#include <gtest/gtest.h>

#include "demo.hpp"

namespace {

TEST(Results, AFailureIsAValue) {
  nvllm::engine_options options;
  options.model_path = "/no/such/folder";
  nvllm::result<nvllm::engine> engine = nvllm::engine::open(options);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().status, NVLLM_ERR_IO);
  EXPECT_NE(engine.error().message.find("/no/such/folder"), std::string::npos);
}

TEST(Results, AnEngineWorksWithoutExceptions) {
  nvllm::result<nvllm::engine> engine = nvllm::engine::open(demo_options());
  ASSERT_TRUE(engine) << engine.error().message;
  nvllm::result<std::string> prompt = engine->apply_chat_template({{"user", "list all prime numbers within 10"}});
  ASSERT_TRUE(prompt);
  nvllm::result<uint64_t> id = engine->add(*prompt, greedy(64));
  ASSERT_TRUE(id);
  nvllm::result<bool> awaited = engine->wait();
  ASSERT_TRUE(awaited);
  EXPECT_TRUE(*awaited);
  std::string text;
  while (!engine->is_finished()) {
    ASSERT_TRUE(engine->step());
    nvllm::output_range outputs = engine->outputs();
    for (const nvllm::output& news : outputs) text += news.text();
    EXPECT_FALSE(outputs.error());
  }
  EXPECT_EQ(text, "Prime numbers within 10: 2, 3, 5, 7.");
  nvllm::result<nvllm::results> answers = engine->generate({*prompt}, greedy(64));
  ASSERT_TRUE(answers);
  EXPECT_EQ((*answers)[0].text(), text);
}

TEST(Results, EachKindOfCallFailsInItsOwnWay) {
  nvllm::result<nvllm::engine> opened = nvllm::engine::open(demo_options());
  ASSERT_TRUE(opened);
  nvllm::engine moved_to = std::move(*opened);
  nvllm::engine& gone = *opened;
  EXPECT_EQ(gone.step().error().status, NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(gone.poll().error().status, NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(gone.wait().error().status, NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(gone.set_output_callback({}).error().status, NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(gone.generate({"x"}).error().status, NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(gone.tokenize("x").error().status, NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(gone.stats().error().status, NVLLM_ERR_INVALID_ARGUMENT);
  nvllm::output_range outputs = gone.outputs();
  for (const nvllm::output& news : outputs) ADD_FAILURE() << news.text();
  ASSERT_TRUE(outputs.error());
  EXPECT_EQ(outputs.error()->status, NVLLM_ERR_INVALID_ARGUMENT);
  EXPECT_TRUE(moved_to.set_output_callback({}));
}

}  // namespace
