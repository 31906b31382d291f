// The classes of Unity that Samples~/Character uses, for a compiler and a runtime without Unity.

using System;

namespace UnityEngine
{
    public class MonoBehaviour
    {
        public bool enabled = true;
    }

    public sealed class TooltipAttribute : Attribute
    {
        public TooltipAttribute(string text) { }
    }

    public sealed class TextAreaAttribute : Attribute { }

    public struct Rect
    {
        public Rect(float x, float y, float width, float height) { }
    }

    public static class Application
    {
        public static string streamingAssetsPath = "";
    }

    public static class Debug
    {
        public static void LogException(Exception exception, object context) => Console.Error.WriteLine(exception.Message);
    }

    public static class GUI
    {
        /// <summary>What the player types next, and whether the button is then pressed.</summary>
        public static string Typed;

        public static string Shown = "";

        public static void Box(Rect where, string text) { Shown = text; }

        public static string TextField(Rect where, string text) => Typed ?? text;

        public static bool Button(Rect where, string text)
        {
            bool pressed = Typed != null;
            Typed = null;
            return pressed;
        }
    }
}
