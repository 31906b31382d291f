// Plays Samples~/Character without Unity: frames call what Unity calls. Its arguments are the folder of StreamingAssets and the model in it.

using System;
using System.Reflection;
using System.Threading;
using UnityEngine;

static class Play
{
    static readonly Character Brenna = new Character();

    static void Send(string message) => typeof(Character).GetMethod(message, BindingFlags.Instance | BindingFlags.NonPublic).Invoke(Brenna, null);

    static void FramesUntil(Func<bool> holds, string what)
    {
        for (int frame = 0; !holds(); frame++)
        {
            if (frame > 2000) throw new Exception("not within 2000 frames: " + what + "; the bubble has: " + GUI.Shown);
            Send("Update");
            Send("OnGUI");
            Thread.Sleep(1);
        }
    }

    static void Expect(string found, string wanted)
    {
        if (found != wanted) throw new Exception("wanted " + wanted + ", found " + found);
    }

    static int Main(string[] arguments)
    {
        Application.streamingAssetsPath = arguments[0];
        Brenna.model = arguments[1];
        Send("OnEnable");
        FramesUntil(() => Brenna.IsListening, "the model is loaded");
        Expect(Brenna.Answer, "Well met.");
        // Who speaks into an answer ends it.
        Brenna.stepBudgetMs = 0.01f;
        GUI.Typed = "list all prime numbers within 100";
        FramesUntil(() => Brenna.Answer.StartsWith("I") && !Brenna.IsListening, "an answer grows");
        GUI.Typed = "what do you sell?";
        FramesUntil(() => Brenna.Answer == "…", "the next question is heard");
        Brenna.stepBudgetMs = 4;
        FramesUntil(() => Brenna.IsListening, "the answer has ended");
        if (!Brenna.Answer.Contains("sword")) throw new Exception(Brenna.Answer);
        Send("OnGUI");
        Expect(GUI.Shown, Brenna.Answer);
        Send("OnDisable");

        Brenna.model = "no/such/model";
        Send("OnEnable");
        FramesUntil(() => !Brenna.enabled, "a missing model is told");
        if (!Brenna.Answer.Contains("no/such/model")) throw new Exception(Brenna.Answer);
        Send("OnDisable");
        Console.WriteLine("Brenna: all passed");
        return 0;
    }
}
