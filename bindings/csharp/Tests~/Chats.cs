// Conversations that keep their history.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Nanovllm;

static class Chats
{
    const string Question = "list all prime numbers within 20", Primes = "Prime numbers within 20: 2, 3, 5, 7, 11, 13, 17, 19.";

    static readonly Engine Engine = Demo.Open();

    static string[] History(Chat chat) => chat.Messages.Select(message => message.Role + ": " + message.Content).ToArray();

    static string Say(Chat chat, string text) => string.Concat(chat.Send(text).Select(output => output.Text));

    // A frame of a game: what TryPoll returns goes to the conversation that it belongs to.
    static void Frame(ref Output output, params Chat[] chats)
    {
        Engine.Step(TimeSpan.FromMilliseconds(4));
        while (Engine.TryPoll(ref output))
        {
            Output polled = output;
            Expect.Equal(chats.Count(chat => chat.Take(polled)), 1);
        }
    }

    public static void TheHistoryIsKeptAndSent()
    {
        var chat = new Chat(Engine, "You are brief.") { Options = Demo.Greedy(64) };
        string first = Say(chat, Question), second = Say(chat, "and again");
        Expect.Sequence(History(chat), new[] { "system: You are brief.", "user: " + Question, "assistant: " + first, "user: and again", "assistant: " + second });
        ChatMessage[] asked = chat.Messages.Take(4).ToArray();
        Expect.Equal(Engine.Generate(Engine.ApplyChatTemplate(asked), Demo.Greedy(64)).Single().Text, second);
        chat.Reset();
        Expect.Sequence(History(chat), new[] { "system: You are brief." });
        chat.Append(asked[1], asked[2]);
        Expect.Equal(Say(chat, "and again"), second);
        Expect.True(first.Length > 0 && chat.Answer == second && !chat.IsAnswering, "the last answer stays");
    }

    public static void CharactersOfOneLoopShareAnEngine()
    {
        var chats = new[] { new Chat(Engine), new Chat(Engine), new Chat(Engine) };
        foreach (Chat chat in chats)
        {
            chat.Options = Demo.Greedy(64);
            Expect.True(chat.Begin(Question) > 0 && chat.IsAnswering, "it is being answered");
        }
        Output output = null;
        while (chats.Any(chat => chat.IsAnswering)) Frame(ref output, chats);
        foreach (Chat chat in chats)
        {
            Expect.Equal(chat.Answer, Primes);
            Expect.Sequence(History(chat), new[] { "user: " + Question, "assistant: " + Primes });
        }
    }

    public static void AFrameAllocatesNothing()
    {
        var chat = new Chat(Engine) { Options = Demo.Endless() };
        Output output = null;
        int seen = 0;
        Action frame = () =>
        {
            Engine.Step();
            while (Engine.TryPoll(ref output)) chat.Take(output);
            seen = Math.Max(seen, chat.AnswerSpan.Length);
        };
        chat.Begin("Hello");
        for (int i = 0; i < 50; i++) frame();
        long before = GC.GetAllocatedBytesForCurrentThread();
        for (int i = 0; i < 100; i++) frame();
        long allocated = GC.GetAllocatedBytesForCurrentThread() - before;
        Expect.True(chat.Cancel(), "it ran in every frame");
        while (chat.IsAnswering) frame();
        Expect.True(seen > 100, "it read " + seen + " characters");
        Expect.Equal(allocated, 0L);
        Expect.Sequence(History(chat), new[] { "user: Hello", "assistant: " + chat.Answer });
    }

    public static void AnAnswerThatIsLeftIsKeptAsFarAsItCame()
    {
        var chat = new Chat(Engine) { Options = Demo.Endless() };
        string heard = "";
        foreach (Output output in chat.Send("Hello"))
        {
            heard += output.Text;
            if (heard.Length > 0) break;
        }
        Expect.Sequence(History(chat), new[] { "user: Hello", "assistant: " + heard });
        Expect.Equal(Demo.Run(Engine).Count, 0);
    }

    public static void AQuestionThatFailsLeavesTheHistoryAsItWas()
    {
        var chat = new Chat(Engine);
        Expect.Status(Status.ContextLength, () => chat.Begin(new string('x', 100000)));
        Expect.Status(Status.ContextLength, () => Say(chat, new string('x', 100000)));
        chat.Options = new RequestOptions { N = 2 };
        Expect.Throws<ArgumentException>(() => chat.Begin("Hello"));
        chat.Options = new RequestOptions { TopP = 2 };
        Expect.Status(Status.InvalidArgument, () => chat.Begin("Hello"));
        Expect.Throws<ArgumentNullException>(() => chat.Begin(null));
        Expect.True(chat.Messages.Count == 0 && !chat.IsAnswering, "nothing was said");
        chat.Options = Demo.Greedy(64);
        Expect.Equal(Say(chat, Question), Primes);
    }

    public static void NothingChangesDuringAnAnswer()
    {
        var chat = new Chat(Engine) { Options = Demo.Endless() };
        chat.Begin("Hello");
        Expect.Throws<InvalidOperationException>(() => chat.Reset());
        Expect.Throws<InvalidOperationException>(() => chat.Append(new ChatMessage("user", "x")));
        Expect.Throws<InvalidOperationException>(() => chat.Begin("another"));
        chat.Cancel();
        Output output = null;
        while (chat.IsAnswering) Frame(ref output, chat);
        Expect.True(!chat.Cancel(), "nothing is left to cancel");
    }

    public static void MessagesNeedNoJson()
    {
        var messages = new[] { new ChatMessage("user", Question) };
        ulong id = Engine.AddChat(messages, Demo.Greedy(64));
        Output output = null;
        string text = "";
        while (!Engine.IsFinished)
        {
            Engine.Step();
            while (Engine.TryPoll(ref output)) text += output.RequestId == id ? output.Text : "?";
        }
        Expect.Equal(text, Primes);
        Expect.Throws<ArgumentNullException>(() => Engine.AddChat(new[] { new ChatMessage("user", null) }));
        Expect.Throws<ArgumentException>(() => Engine.AddChat(new[] { new ChatMessage("user", "a\0b") }));
    }

    public static async Task TasksTalkAtOnce()
    {
        using (var engine = new AsyncEngine(Demo.Open()))
        {
            Func<Task<Chat>> talk = async () =>
            {
                var chat = new Chat(engine.Engine) { Options = Demo.Greedy(64) };
                IAsyncEnumerator<Output> outputs = chat.SendAsync(engine, Question).GetAsyncEnumerator();
                try
                {
                    while (await outputs.MoveNextAsync()) Expect.True(chat.IsAnswering, "it is being answered");
                }
                finally
                {
                    await outputs.DisposeAsync();
                }
                return chat;
            };
            foreach (Chat chat in await Task.WhenAll(Enumerable.Range(0, 8).Select(i => talk())))
                Expect.Sequence(History(chat), new[] { "user: " + Question, "assistant: " + Primes });
            Expect.Throws<ArgumentException>(() => new Chat(Engine).SendAsync(engine, "Hello"));
        }
    }
}
